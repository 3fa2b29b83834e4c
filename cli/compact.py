"""``pivot compact`` and ``pivot migrate``: a store written once more as another one."""

from pydantic import Field

from ..api import stores as api
from ..datasets.parts import members_of
from ..datasets.store import Store
from ..flows.migrate import open_older
from ..flows.pipeline import BuildResult, result_of
from .build import WORKERS
from .console import ProgressBars, err, out, quoted
from .from_config import Flag, Form, from_config
from .options import AddressField, Options, WorkerOptions


class CopyOptions(Options):
    """Options of a command that writes a store as a new one."""

    root: AddressField
    """Folder of a finished store, or its s3:// address."""
    out: AddressField
    """Folder of the new store, or its s3:// address; new, or an unfinished one to resume."""


class CompactOptions(CopyOptions):
    """Options of ``pivot compact``."""

    shard_size: int | None = Field(default=None, ge=1)
    """Tasks per shard; by default as many as a new build of this size has, 16 to 128."""
    merge: bool = False
    """Merge all parts that have the same policy, teacher and settings into one."""
    sources: bool = False
    """Read the folders of models that run.json names, for their revisions."""


COMPACT = Form(
    "compact", CompactOptions, {"root": Flag(argument="DIR"), "merge": Flag(off="-"), "sources": Flag(off="-")}
)
MIGRATE = Form("migrate", CopyOptions, {"root": Flag(argument="DIR")})


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


@from_config(MIGRATE, WORKERS)
def migrate(options: CopyOptions, workers: WorkerOptions) -> None:
    """Write a store of an older version as a new store of this version: columns, ids, labels, dataset, card.

    No model is called: episodes are replayed with the stored replies, and labels are certified again with the stored
    guidance. If the teacher would get another request now, its answer is pending, and the next build asks for it. A
    shard whose replay differs from its rows is refused by name.

    The old store stays as it is. Run the same command again to resume. Older label versions and rollback probes are
    not copied.

    [bold]Example[/]

    pivot migrate runs/last-year --out runs/this-year
    """
    store, _ = open_older(options.root)
    with ProgressBars() as bars:
        migration = api.migrate(options.root, options.out, reporter=bars, **workers.model_dump())
    for setting in migration.left_out:
        err.print(f"left out, because this version has no such setting: {setting}", soft_wrap=True)
    _show_copy(store, migration.result)


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
