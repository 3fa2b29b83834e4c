"""Error messages for object stores: what happened, what was expected, what to do next."""

import re

from ..errors import ReadOnlyError, StoreError

_REASON = re.compile(r'message: "([^"]{1,200})"')
"""Error of the operating system within the details of a library error."""
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_DETAIL = re.compile(r"<Message>([^<]{1,300})</Message>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>|expecting '([\w-]+)'")

_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, where the key came with one)",
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS to a key file, or log in with: gcloud auth application-default login",
    "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN)",
}
_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_AGAIN = "run the same command again; finished shards are kept"


def explained(action: str, address: str, error: Exception, endpoint: str | None) -> StoreError:
    """Describe a failed operation on an object; ``endpoint`` is the server, if one was named.

    A refused write with valid credentials gives a ReadOnlyError.
    """
    scheme, _, rest = address.partition("://")
    bucket, text = f"{scheme}://{rest.split('/')[0]}", str(error).split("\n\nDebug source")[0]
    code, kind = _first(_CODE, text), type(error).__name__
    status = _first(_STATUS, text)
    server = endpoint or {"s3": "Amazon S3", "gs": "Google Cloud Storage", "az": "Azure"}[scheme]
    region = _REGION.search(text)
    if code in ("NoSuchBucket", "ContainerNotFound") or (action in ("open", "list") and status == "404"):
        what = f"bucket {bucket} does not exist at {server}"
        fix = f"create it, or fix the address, or {_ENDPOINTS[scheme]} if it is on another server"
    elif region or code == "PermanentRedirect" or "incorrectly configured region" in text:
        right = next((each for each in region.groups() if each), None) if region else None
        what = f"bucket {bucket} is in {f'region {right}' if right else 'another region'}"
        fix = f"set AWS_REGION={right or 'to that of the bucket'}"
    elif kind in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403") or _no_credentials(text):
        detail = _first(_DETAIL, text) or f"status {status}"
        refused = f"{server} refused the credentials ({f'{code}: ' if code else ''}{detail})"
        what = f"no credentials for {server} were found" if _no_credentials(text) else refused
        fix = f"{_CREDENTIALS[scheme]}; expected are rights to list, read and write objects of {bucket}"
        if action == "write" and code == "AccessDenied":
            return ReadOnlyError(f"cannot {action} {address}: {what}; {fix}")
    elif isinstance(error, FileNotFoundError):
        what, fix = "the object does not exist", "restore it from a copy, or run the same build again"
    elif status == "501" or code == "NotImplemented":
        what = f"{server} lacks a needed feature ({code or status}); expected conditional writes as of Amazon S3"
        fix = "use a newer server, or build into a local folder and copy it there"
    elif status:
        what, fix = f"{server} answered with status {status}{f' ({code})' if code else ''}", _AGAIN
    else:
        what = f"{server} cannot be reached ({_first(_REASON, str(error)) or _last(text)})"
        fix = f"check that it runs and that {_ENDPOINTS[scheme]} and the network are right, then {_AGAIN}"
    return StoreError(f"cannot {action} {address}: {what}; {fix}")


def _no_credentials(text: str) -> bool:
    """Whether the environment has no credentials: the library then asks the cloud machine, or lacks an account."""
    hints = ("169.254.169.254", "169.254.170.2", "metadata.google.internal", "Account must be specified")
    return any(each in text for each in hints)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _last(text: str) -> str:
    """Return the innermost cause in an error text of the library."""
    return text.strip().rpartition(" - ")[2].splitlines()[0][:200] if text.strip() else "no reason given"
