"""The flow that publishes a finished store, as ``pivot push`` does, for a worker."""

from typing import Any

from prefect import flow

from ..core.storage import parse_address
from ..datasets.export.publish import PREFIX, parse_target, publish
from .watch import watched


@flow(name="push-dataset", flow_run_name="push {root} to {target}", persist_result=False)
def push_dataset(root: str, target: str, private: bool = False) -> dict[str, Any]:
    """Publish the dataset of a finished store on the Hugging Face hub; an unchanged version is not sent again.

    The worker needs a login: `HF_TOKEN` in its environment, or `hf auth login`.

    Args:
        root: Folder of the store, or its address.
        target: `hub:OWNER/NAME`; the repository is made if there is none.
        private: Make a new repository private.

    Raises:
        PivotError: as :func:`.publish`.
    """
    repo, store = parse_target(target), parse_address(root)
    with watched(f"push-{root}") as watch:

        def say(line: str) -> None:
            watch.log.info("%s", line)

        made = publish(store, repo, private=private, say=say)
        watch.log.info("%s%s has this version: %d files, %d sent", PREFIX, repo, made.files, made.sent)
    return {"repo": repo, "commit": made.commit, "files": made.files, "sent": made.sent, "bytes": made.sent_bytes}
