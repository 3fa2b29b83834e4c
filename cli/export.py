"""``pivot export``, ``pivot merge`` and ``pivot push``: a store for a trainer, several as one, a dataset on the hub."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from ..datasets.store.store import Store
from ..flows.export import export as write_export
from ..flows.merge import merge as merge_stores
from .build import WORKERS
from .console import ProgressBars, err, out, quoted
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions, registered

if TYPE_CHECKING:
    from ..datasets.export.publish import Publication


class ExportOptions(Options):
    """Options of ``pivot export``."""

    kind: str
    """Registered format: credit, corrections, pairs, privileged, analyzer or dataset."""
    store: AddressField
    """Folder of a finished store, or its s3:// address."""
    out: AddressField
    """Folder of the export, or its s3:// address; new, or an unfinished one to resume."""
    env: tuple[str, ...] = ()
    """Environment of the store to export; all by default."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Setting of the format, such as rule=slack."""

    @field_validator("kind")
    @classmethod
    def _is_registered(cls, kind: str) -> str:
        return registered("exporters", kind)


EXPORT = Form(
    "export",
    ExportOptions,
    {"kind": Flag(argument="KIND"), "store": Flag(argument="STORE"), "settings": Flag(name="--set")},
)


@from_config(EXPORT, WORKERS)
def export(options: ExportOptions, workers: WorkerOptions) -> None:
    """Write what a trainer takes from a store, as a Hugging Face dataset in a folder of its own.

    credit: needed turns, slack and a score per turn. corrections: certified actions in the agent's own prompts (TRL
    SFTTrainer). pairs: a safe reply against the fatal one (DPOTrainer). privileged: contexts
    for self-distillation. analyzer: the dataset as chats. The
    store stays as it is; run the same command again to resume. Prove an export with: pivot verify STORE --export DIR

    [bold]Examples[/]

    pivot export pairs runs/first --out runs/first-pairs

    pivot export credit runs/first --out runs/first-credit --env sokoban --set rule=slack
    """
    with ProgressBars() as bars:
        result = write_export(
            options.store,
            options.out,
            format=options.kind,
            settings=options.settings,
            environments=options.env,
            reporter=bars,
            **workers.model_dump(),
        )
    out.print(f"{len(result.files)} files with {result.rows} rows: {result.root}", soft_wrap=True)
    out.print(f"next:\n  pivot verify {quoted(options.store)} --export {quoted(options.out)}", soft_wrap=True)


class MergeOptions(Options):
    """Options of ``pivot merge``."""

    roots: list[AddressField] = Field(min_length=1)
    """Folders of finished stores, or their s3:// addresses."""
    out: AddressField
    """Folder of the new store, or its s3:// address; new, or an unfinished one to resume."""
    sources: bool = False
    """Read the folders of models that run.json names, for their revisions."""


MERGE = Form("merge", MergeOptions, {"roots": Flag(argument="STORE...")})


@from_config(MERGE, WORKERS)
def merge(options: MergeOptions, workers: WorkerOptions) -> None:
    """Write finished stores of one run with different levels, such as nights, to one new store.

    Rows are copied: nothing is rolled out or certified, and no model is called. An episode that is in several stores
    is stored once, and each level is in one split. The stores may differ in seed, tasks and environments
    alone; they stay as they are: remove them after the new one is verified. Run the same command again to resume.
    Only the current labels are copied, and no rollback probe.

    To read stores together without copying them, name the folder that holds them.

    [bold]Examples[/]

    pivot merge runs/nightly/2026-11-26 runs/nightly/2026-11-27 --out runs/november

    pivot merge runs/first --out s3://bucket/first
    """
    with ProgressBars() as bars:
        result = merge_stores(
            *options.roots, out=options.out, sources=options.sources, reporter=bars, **workers.model_dump()
        )
    new = Store.open(result.root)
    counts = result.environments
    done = "; nothing was left to do" if result.already_complete else ""
    episodes = sum(each["episodes"] for each in counts.values())
    shards = f"{result.shards} shard{'s' * (result.shards != 1)}"
    out.print(f"{new.root} holds {episodes} episodes in {shards}{done}", soft_wrap=True)
    if not result.is_whole:
        what = f"{result.pending_episodes + result.unanswered} episodes or answers of a teacher are pending"
        out.print(f"{what}; finish them with: pivot build --out {quoted(new.root)}", soft_wrap=True)
    probed = [root for root in options.roots if any(name.startswith("probe/") for name in Store.open(root).manifest())]
    if probed:
        err.print(f"the rollback probe was not copied; repeat it with: pivot probe {quoted(new.root)}", soft_wrap=True)
    out.print(f"\nnext:\n  pivot verify {quoted(new.root)}   before you remove the others", soft_wrap=True)


class PushOptions(Options):
    """Options of ``pivot push``."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    target: str
    """Dataset of the hub; created if it does not exist."""
    private: bool = False
    """Create it as private."""
    dry_run: bool = False
    """Show what would be sent, and send nothing."""


PUSH_FLAGS = {"root": Flag(argument="DIR"), "target": Flag(argument="hub:OWNER/NAME")}


@from_config(Form("push", PushOptions, PUSH_FLAGS), file=False)
def push(options: PushOptions) -> None:
    """Publish the dataset and card of a finished store on the Hugging Face hub, as one commit.

    The store is hashed against its manifest first. A version becomes visible only when it is complete; after
    Ctrl-C or a kill the same command sends what is missing, and does nothing for a version that is published. Log in
    first with: hf auth login

    [bold]Examples[/]

    pivot push runs/first hub:me/pivot-first --private

    pivot push s3://bucket/runs/first hub:me/pivot-first

    pivot push runs/first hub:me/pivot-first --dry-run
    """
    # Imported here: the library takes a tenth of the start of every command.
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    from ..datasets.export.publish import PREFIX, parse_target, publish  # noqa: PLC0415

    repo = parse_target(options.target)
    disable_progress_bars()  # a line for some files tells more than a bar for each

    def say(text: str) -> None:
        err.print(text, soft_wrap=True)

    result = publish(options.root, repo, private=options.private, dry_run=options.dry_run, say=say)
    for line in _told(result, f"{PREFIX}{result.repo}", options.dry_run):
        out.print(line, soft_wrap=True)


def _told(result: "Publication", repo: str, dry_run: bool) -> list[str]:
    if result.already_there:
        lines = [f"{repo} holds this version already: {result.files} files, commit {result.commit}"]
    else:
        what = f"{result.sent} of {result.files} files, {result.sent_bytes / 1e6:.1f} MB"
        removed = f", and removes {result.removed} of an earlier version" if result.removed else ""
        if dry_run:
            made = "a new dataset" if result.is_new else "there is another version"
            return [f"would send {what}, to {repo}{removed} ({made}); nothing was sent"]
        lines = [f"published {repo}: {what}{removed.replace('removes', 'removed')}, commit {result.commit}"]
    return [*lines, f'load it: load_dataset("{result.repo}", "{result.config}")']
