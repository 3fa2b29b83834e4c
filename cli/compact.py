"""``pivot compact``: a store written once more as another one."""

from pydantic import Field

from ..api import stores as api
from ..datasets.parts import members_of
from ..datasets.store import Store
from ..flows.pipeline import BuildResult, result_of
from .build import WORKERS
from .console import ProgressBars, err, out, quoted
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions


class CompactOptions(Options):
    """Options of ``pivot compact``."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    out: AddressField
    """Folder of the new store, or its s3:// address; new, or an unfinished one to resume."""
    shard_size: int | None = Field(default=None, ge=1)
    """Tasks per shard; by default as many as a new build of this size has, 16 to 128."""
    merge: bool = False
    """Merge all parts that have the same policy, teacher and settings into one."""
    sources: bool = False
    """Read the folders of models that run.json names, for their revisions."""


COMPACT = Form(
    "compact", CompactOptions, {"root": Flag(argument="DIR"), "merge": Flag(off="-"), "sources": Flag(off="-")}
)


@from_config(COMPACT, WORKERS)
def compact(options: CompactOptions, workers: WorkerOptions) -> None:
    """Write a finished store once more in shards of another size: fewer, larger files to list, open and copy.

    Rows are copied: nothing is rolled out or certified, and no model is called. The new store has the bytes of a build
    with such shards. The old store stays as it is; remove it after the new one is verified. Run the same command again
    to resume. Only the current labels are copied, and no rollback probe.

    With --merge, the parts of a store that grew become one where they have the same policy, teacher and settings.
    The new store can no longer be read as of one of them.

    [bold]Examples[/]

    pivot compact runs/grown --out runs/large

    pivot compact runs/first --out runs/small --shard-size 4

    pivot compact runs/grown --out runs/one --merge

    pivot compact runs/grown --out s3://bucket/grown
    """
    store = Store.open(options.root)
    with ProgressBars() as bars:
        result = api.compact(
            options.root,
            options.out,
            shard_size=options.shard_size,
            merge=options.merge,
            sources=options.sources,
            reporter=bars,
            **workers.model_dump(),
        )
    _show_copy(store, result)


def _show_copy(old: Store, result: BuildResult) -> None:
    """Show the size of the new store, and the next command."""
    root, new = old.root, Store.open(result.root)
    members = members_of(new).values()
    episodes = sum(run.tasks * each.config.rollouts for each in members for run in each.config.environments.values())
    shards, parts = sum(len(each.config.shards()) for each in members), len(members)
    size = max(each.config.tasks_per_shard for each in members)
    where = f"{shards} shard{'s' * (shards > 1)} of up to {size} level{'s' * (size > 1)}"
    where += f" in {parts} parts" if parts > 1 else ""
    done = "; nothing was left to do" if result.already_complete else ""
    out.print(f"{new.root} holds the {episodes} episodes of {root} in {where}{done}", soft_wrap=True)
    counts = [counted for each in members if (counted := result_of(each)) is not None]
    if pending := sum(each.pending_episodes + each.unanswered for each in counts):
        what = f"{pending} episodes or answers of a teacher are pending"
        out.print(f"{what}; finish them with: pivot build --out {quoted(new.root)}", soft_wrap=True)
    if any(name.startswith("probe/") for name in old.manifest()):
        err.print(f"the rollback probe was not copied; repeat it with: pivot probe {quoted(new.root)}", soft_wrap=True)
    out.print(f"\nnext:\n  pivot verify {quoted(new.root)}   before you remove {root}", soft_wrap=True)
