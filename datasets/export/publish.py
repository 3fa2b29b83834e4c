"""A store's dataset and card on the Hugging Face hub: one commit per version, so that readers never see a partial one.

Content is sent first, where nobody sees it, and what is there already is not sent again; the commit that names all of
it comes last. After a kill the same call therefore goes on, and once more it says that all is done.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, RepoFile
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

from ...core.errors import ConfigError, HubError, StoreError
from ...core.storage import Address, FileRecord
from ..store.location import refuse_while_written
from ..store.splits import SIDES
from ..store.store import DATASET_FOLDER, Store, refuse_unfinished_relabel
from .card import CARD, PICTURE

PREFIX = "hub:"
AT_ONCE = 64
"""Files per commit of an upload, after which progress is reported; files of a remote store are in memory meanwhile."""

_OURS = re.compile(rf"(?:[\w-]+/(?:{'|'.join(SIDES)})-\d+\.parquet|{re.escape(CARD)}|{re.escape(PICTURE)})")
_BESIDE = re.compile(r"\.gitattributes|\.gitignore|LICENSE[\w.-]*")
"""Files of a repository that publishing leaves unchanged."""

_TRANSPORT: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    *(each for each in HfHubHTTPError.__mro__ if each.__name__ == "HTTPError" and issubclass(each, Exception)),
)
"""Errors of a missing answer, with those of the library's own HTTP client, which differ between its versions."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Publication:
    """The outcome of a push, or its plan."""

    repo: str
    commit: str | None
    """Commit of the hub that has the version; None if no commit was made."""
    files: int
    """Files of the version."""
    sent: int
    """Number of files whose content differed from the hub's."""
    sent_bytes: int
    removed: int
    """Number of removed files, which an earlier version had and this one lacks."""
    is_new: bool
    """Whether there was no such repository before."""
    config: str
    """Name of a config with rows."""

    @property
    def already_there(self) -> bool:
        """Whether the hub held this very version."""
        return not self.is_new and not self.sent and not self.removed


def parse_target(text: str) -> str:
    """Return the repository that ``hub:owner/name`` names.

    Raises:
        ConfigError: it names none.
    """
    match = re.fullmatch(r"hub:([\w.-]+/[\w.-]+)", text)
    if match is None:
        raise ConfigError(f"{text!r} names no dataset of the hub; expected hub:OWNER/NAME, such as hub:me/first")
    return match[1]


def version_files(store: Store) -> dict[str, FileRecord]:
    """Return the files of a store's dataset by their names on the hub; each is hashed and compared with the manifest.

    Raises:
        StoreError: a run writes the store, or a file is missing, changed, or not in the manifest.
    """
    refuse_while_written(store.root)
    storage, beginning = store.storage, f"{DATASET_FOLDER}/"
    listed = {name: record for name, record in store.manifest().items() if name.startswith(beginning)}
    present = set(storage.listing(DATASET_FOLDER))
    problems = [f"{name} is missing" for name in listed.keys() - present]
    problems += [f"{name} is not in the manifest" for name in present - listed.keys()]
    if not problems:
        with ThreadPoolExecutor(8) as pool:
            records = dict(zip(listed, pool.map(storage.record, listed), strict=True))
        problems = [f"{name} was changed" for name, record in records.items() if record != listed[name]]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise StoreError(
            f"{store.root} is not what its manifest says: {min(problems)}{more}; nothing was published; see all of it "
            f"with: pivot verify {store.root}"
        )
    return {name.removeprefix(beginning): listed[name] for name in sorted(listed)}


def publish(
    root: Address, repo: str, *, private: bool = False, dry_run: bool = False, say: Say = lambda _: None
) -> Publication:
    """Publish the dataset of a finished store as the newest version of a dataset repository of the hub.

    Args:
        root: the store.
        repo: ``owner/name``; made if there is none.
        private: make it a private one.
        dry_run: only return the plan.
        say: gets lines about the progress.

    Raises:
        StoreError: the store is missing or unfinished, or differs from its manifest.
        HubError: the hub refuses, or cannot be reached; uploaded files are kept there, and not visible.
        ConfigError: the repository holds something else, or is public and asked for as private.
    """
    store = Store.open(root)
    refuse_unfinished_relabel(root)
    files = version_files(store)
    configs = [name.split("/")[-2] for name in files if name.endswith(".parquet")]
    config = next((name for name in configs if not name.endswith("_episodes")), "all")
    api = HfApi()
    with _explained(repo):
        there = _remote(api, repo)
    if there is not None and private and not there.private:
        raise ConfigError(
            f"{PREFIX}{repo} is public, and --private makes new repositories private only; change that in its settings "
            "on the hub, or choose another name"
        )
    shown: Mapping[str, str] = there.files if there else {}
    if foreign := [name for name in shown if not _OURS.fullmatch(name) and not _BESIDE.fullmatch(name)]:
        raise ConfigError(
            f"{PREFIX}{repo} holds {foreign[0]!r}, which no push left there; choose another name, or remove it"
        )
    changed = {name: file for name, file in files.items() if not _is_same(store, name, file, shown.get(name))}
    gone = [name for name in shown if _OURS.fullmatch(name) and name not in files]
    size, is_new = sum(file.bytes for file in changed.values()), there is None
    commit = there.commit if there else None
    if not dry_run and (is_new or changed or gone):
        say(f"sending {len(changed)} of {len(files)} files, {size / 1e6:.1f} MB, to {PREFIX}{repo}")
        with _explained(repo):
            commit = _send(api, store, repo, there, changed, gone, private, say)
    return Publication(repo, commit, len(files), len(changed), size, len(gone), is_new, config)


class _Remote(NamedTuple):
    """The current state of a repository."""

    commit: str
    """Its last commit."""
    private: bool
    files: Mapping[str, str]
    """SHA-256 of the content, or git's object id, by name."""


def _remote(api: HfApi, repo: str) -> _Remote | None:
    try:
        info = api.dataset_info(repo)
    except RepositoryNotFoundError:
        return None
    tree = api.list_repo_tree(repo, recursive=True, revision=info.sha, repo_type="dataset")
    listed = [each for each in tree if isinstance(each, RepoFile)]
    files = {each.path: each.lfs.sha256 if each.lfs else each.blob_id for each in listed}
    return _Remote(str(info.sha), bool(info.private), files)


def _is_same(store: Store, name: str, file: FileRecord, shown: str | None) -> bool:
    """Return whether the hub has the same content of a file; for small files it reports git's object id."""
    if shown is None or len(shown) != 40:
        return shown == file.sha256
    content = store.storage.read_bytes(f"{DATASET_FOLDER}/{name}")
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == shown


def _send(
    api: HfApi,
    store: Store,
    repo: str,
    there: _Remote | None,
    changed: Mapping[str, FileRecord],
    gone: Sequence[str],
    private: bool,
    say: Say,
) -> str:
    if there is None:
        api.create_repo(repo, repo_type="dataset", private=private or None, exist_ok=True)
    parent = there.commit if there else api.dataset_info(repo).sha
    additions: list[CommitOperationAdd] = []
    names = list(changed)
    for first in range(0, len(names), AT_ONCE):
        some = list[CommitOperationAdd]()
        for name in names[first : first + AT_ONCE]:
            storage, stored = store.storage, f"{DATASET_FOLDER}/{name}"
            content: Any = storage.read_bytes(stored) if storage.remote else storage.local_path(stored)
            some.append(CommitOperationAdd(name, content))
            some[-1].upload_info.sha256 = bytes.fromhex(changed[name].sha256)  # known, so the file is not read again
        api.preupload_lfs_files(repo, some, repo_type="dataset", free_memory=True)
        additions += some
        size = sum(changed[each.path_in_repo].bytes for each in additions)
        say(f"sent {len(additions)} of {len(changed)} files, {size / 1e6:.1f} MB")
    config = store.config
    info = api.create_commit(
        repo,
        [*additions, *(CommitOperationDelete(name, is_folder=False) for name in gone)],
        commit_message=f"PIVOT run {store.stored_run_id}, label version {config.label_version}",
        repo_type="dataset",
        parent_commit=parent,
    )
    return info.oid


@contextlib.contextmanager
def _explained(repo: str) -> Iterator[None]:
    """Raise errors with the hub's answer, and never with the request, which holds the token."""
    again = "then run the same command again: what was sent is kept, and nobody sees it yet"
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        said = (error.server_message or "").strip().splitlines()
        what = f"the hub answered {status}{f' ({said[0][:200]})' if said else ''} for {PREFIX}{repo}"
        if status in (401, 403):
            fix = "log in with a token that may write there (hf auth login, or the variable HF_TOKEN)"
        elif status in (409, 412):
            fix = "somebody else changed the repository meanwhile; see what is there"
        else:
            fix = "wait a little"
        raise HubError(f"{what}; {fix}, {again}") from error
    except OfflineModeIsEnabled as error:
        raise HubError("the hub is not to be reached, as HF_HUB_OFFLINE says; unset it to publish") from error
    except _TRANSPORT as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise HubError(f"{PREFIX}{repo} cannot be written ({reason[0][:200]}); check the network, {again}") from error
