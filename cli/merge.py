"""``pivot merge``: several stores written once more as one."""

from pydantic import Field

from ..datasets.store.store import Store
from ..flows import merge as merging
from .build import WORKERS
from .console import ProgressBars, err, out, quoted
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions


class MergeOptions(Options):
    """Options of ``pivot merge``."""

    roots: list[AddressField] = Field(min_length=1)
    """Folders of finished stores, or their s3:// addresses."""
    out: AddressField
    """Folder of the new store, or its s3:// address; new, or an unfinished one to resume."""
    sources: bool = False
    """Read the folders of models that run.json names, for their revisions."""


MERGE = Form("merge", MergeOptions, {"roots": Flag(argument="STORE..."), "sources": Flag(off="-")})


@from_config(MERGE, WORKERS)
def merge(options: MergeOptions, workers: WorkerOptions) -> None:
    """Write finished stores of one run with different levels, such as nights, to one new store.

    Rows are copied: nothing is rolled out or certified, and no model is called. An episode that is in several stores
    is stored once, and each level is on one side of the split. The stores may differ in seed, tasks and environments
    alone; they stay as they are: remove them after the new one is verified. Run the same command again to resume.
    Only the current labels are copied, and no rollback probe.

    To read stores together without copying them, name the folder that holds them.

    [bold]Examples[/]

    pivot merge runs/nightly/2026-11-26 runs/nightly/2026-11-27 --out runs/november

    pivot merge runs/first --out s3://bucket/first
    """
    with ProgressBars() as bars:
        result = merging.merge(
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
