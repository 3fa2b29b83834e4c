"""``pivot push``: publish a store's dataset on the Hugging Face hub."""

from typing import TYPE_CHECKING, Annotated

import typer

from .console import err, out
from .options import StorePath, option

if TYPE_CHECKING:
    from ..datasets.export.publish import Publication

MAIN = "main"
"""The default branch; `publish.MAIN`, whose module imports the library of the hub."""


def push(
    root: StorePath,
    target: Annotated[
        str, typer.Argument(metavar="hub:OWNER/NAME", help="Dataset of the hub; created if it does not exist.")
    ],
    private: Annotated[bool, option("Create it as private.", "--private")] = False,
    revision: Annotated[str, option("Branch of the dataset; created if it does not exist.", "--revision")] = MAIN,
    dry_run: Annotated[bool, option("Show what would be sent, and send nothing.", "--dry-run")] = False,
) -> None:
    """Publish the dataset and card of a finished store on the Hugging Face hub, as one commit.

    The store is hashed against its manifest first. A version becomes visible only when it is complete; after
    Ctrl-C or a kill the same command sends what is missing, and does nothing for a version that is published. Log in
    first with: hf auth login

    [bold]Examples[/]

    pivot push runs/first hub:me/pivot-first --private

    pivot push s3://bucket/runs/first hub:me/pivot-first --revision v2

    pivot push runs/first hub:me/pivot-first --dry-run
    """
    # Imported here: the library takes a tenth of the start of every command.
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    from ..datasets.export.publish import PREFIX, parse_target, publish  # noqa: PLC0415

    repo = parse_target(target)
    disable_progress_bars()  # a line for some files tells more than a bar for each

    def say(text: str) -> None:
        err.print(text, soft_wrap=True)

    result = publish(root, repo, private=private, revision=revision, dry_run=dry_run, say=say)
    for line in _told(result, f"{PREFIX}{result.repo}", dry_run):
        out.print(line, soft_wrap=True)


def _told(result: "Publication", repo: str, dry_run: bool) -> list[str]:
    name = repo + (f" ({result.revision})" if result.revision != MAIN else "")
    if result.already_there:
        lines = [f"{name} holds this version already: {result.files} files, commit {result.commit}"]
    else:
        what = f"{result.sent} of {result.files} files, {result.sent_bytes / 1e6:.1f} MB"
        removed = f", and removes {result.removed} of an earlier version" if result.removed else ""
        if dry_run:
            made = "a new dataset or branch" if result.is_new else "there is another version"
            return [f"would send {what}, to {name}{removed} ({made}); nothing was sent"]
        lines = [f"published {name}: {what}{removed.replace('removes', 'removed')}, commit {result.commit}"]
    revision = f', revision="{result.revision}"' if result.revision != MAIN else ""
    return [*lines, f'load it: load_dataset("{result.repo}", "{result.config}"{revision})']
