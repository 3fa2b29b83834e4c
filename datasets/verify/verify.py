"""``pivot verify``: prove a store again from its rows.

Nothing that the store says about itself is trusted but its config: levels, episode ids and the split are derived from
``run.json``, frame ids from pixels, rewards and frames from a replay, labels from an independent search. The manifest
is checked too, but every change of a row is found without it. The config is trusted to say what was made, not where to
look: no path that it names is followed unless the user says so.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...core.admission import refusal
from ...core.errors import ConfigError, ForbiddenError, GenerationError, StoreError
from ...core.progress import Reporter
from ...core.storage import Address, open_storage
from ...environments.base import Task
from ..store.config import RunConfig, Shard
from ..store.dataset_rows import ShardSplit, plan_split
from ..store.inputs import episodes_of
from ..store.schema import EPISODES, STEPS
from ..store.store import MANIFEST, RUN, Store, refuse_unfinished_relabel
from .files import card_problems, receipt_problems, run_problems
from .imports import import_problems
from .inventory import file_problems
from .limits import LimitProblem, Limits, within
from .report import Report, ShardReport
from .shard import refused_code, stored_policy, verify_shard
from .views import view_problems

Stream = Callable[[Callable[..., ShardReport], Sequence[tuple[Any, ...]]], Iterator[ShardReport]]
STAGE = "verify"


def verify_store(
    root: Address,
    progress: Reporter,
    stream: Stream | None = None,
    *,
    follow: bool = False,
    limits: Limits | None = None,
) -> Report:
    """Verify a finished store; ``stream`` runs the shards, by default one by one in this process.

    With ``follow`` the places that ``run.json`` names (folders of targets, task files, checkpoints) are read. A shard
    or check that reaches one of the ``limits`` is a problem.

    Raises:
        StoreError: the store at ``root`` is missing or unfinished, a run writes it, its last one was interrupted, or
            one of its files may not be read.
        GenerationError, PluginError, ConfigError: its config cannot be carried out here, so nothing can be derived.
    """
    limits = limits or Limits()
    refuse_while_written(root)
    refuse_huge(root, limits)
    store = Store.open(root)
    refuse_unfinished_relabel(root)
    before = store.storage.stat(MANIFEST)
    report = _verify(store, progress, stream or _one_by_one, limits, follow=follow)
    refuse_while_written(root)
    if store.storage.stat(MANIFEST) != before:
        raise StoreError(f"{root} was changed by a run while it was verified; verify it again")
    return report


def refuse_huge(root: Address, limits: Limits) -> None:
    """Refuse a store whose ``run.json`` or manifest would take more memory than the limit.

    Raises:
        StoreError: one is too large.
    """
    storage, most = open_storage(root), (limits.memory << 20) // _PARSED
    for name in (RUN, MANIFEST):
        status = storage.stat(name)
        if status is not None and status.bytes > most:
            raise StoreError(
                f"limit reached: {storage.address(name)} has {status.bytes} bytes, at most {most} are read within "
                f"{limits.memory} MiB; raise it with --max-memory"
            )


_PARSED = 16
"""Bytes of memory per byte of JSON."""


def refuse_while_written(root: Address) -> None:
    """Refuse a store that a run is writing, whose files differ from its manifest and from each other.

    Raises:
        StoreError: a run holds its lock.
    """
    writer = open_storage(root).writer()
    if writer is not None:
        raise StoreError(
            f"{root} is being written by another run (process {writer}), so there is nothing to verify yet; wait for "
            "its end"
        )


def _verify(store: Store, progress: Reporter, stream: Stream, limits: Limits, *, follow: bool) -> Report:
    report = Report()
    manifest = store.manifest()
    for check in (file_problems, _run_problems):
        report.problems += _described(check, store, limits)
    tasks: dict[Shard, list[Task] | None] = {}
    split: dict[Shard, ShardSplit] = {}

    def plan() -> list[str]:
        tasks.update(_planned(store, report, follow=follow))
        return []

    def split_shards(store: Store) -> list[str]:
        split.update(plan_split(store))
        return []

    if reached := within(limits, "planning the levels", plan):
        report.problems += reached
        return report
    report.problems += _described(split_shards, store, limits)
    shards = store.config.shards()
    episodes = {shard: episodes_of(store, shard) for shard in shards}
    progress.start(STAGE, sum(episodes.values()))
    arguments = [(store.root, store.config, shard, tasks[shard], split.get(shard), follow, limits) for shard in shards]
    reports: dict[Shard, ShardReport] = {}
    for part in stream(verify_shard, arguments):
        reports[part.shard] = part
        progress.advance(STAGE, episodes[part.shard])
    progress.finish(STAGE)
    for shard in shards:
        report.problems += reports[shard].problems
        report.unproved += reports[shard].unproved
        report.count(reports[shard].checked)
    if prose := sum(each.prose for each in reports.values()):
        report.notes.append(prose_note(store.config, prose))
    if any(refused_code(env, follow=follow) for env in store.run.envs.values()):
        report.notes.append("receipts, card and views were not derived: they need the labels")
        return report
    expected = {shard: reports[shard].receipts for shard in shards}
    report.problems += _described(lambda store: receipt_problems(store, manifest, expected), store, limits)
    if any(isinstance(problem, LimitProblem) for problem in report.problems):
        report.notes.append("card and views were not derived: rows that reach a limit are not read again")
        return report
    for check in (card_problems, view_problems, *((import_problems,) if store.is_imported else ())):
        report.problems += _described(check, store, limits)
    report.vouches_for(store)
    return report


def prose_note(config: RunConfig, count: int) -> str:
    """Say in plain words that guidance is not proved, and how many labels have such a text."""
    what, remedy = "is prose and was not proved", "render it from facts with: pivot relabel --guidance facts"
    if config.guidance == "facts":
        return (
            f"the guidance of {count} accepted labels was not proved: an earlier version rendered it in wordings that "
            "have changed since; render it again with: pivot relabel"
        )
    return f"the guidance of {count} accepted labels {what}: the run asked for free text of the teacher; {remedy}"


def _one_by_one(call: Callable[..., ShardReport], arguments: Sequence[tuple[Any, ...]]) -> Iterator[ShardReport]:
    for each in arguments:
        yield call(*each)


def _described(check: Callable[[Store], list[str]], store: Store, limits: Limits) -> list[str]:
    """Run a check of files that a stranger made within limits; what breaks it is a problem of the store."""
    try:
        return within(limits, f"a check of {store.root}", lambda: check(store))
    except ForbiddenError:
        raise  # nothing is known of the store then
    except StoreError as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001 - files that nobody can read break it in any way
        return [f"{store.root}: its files do not fit together ({type(error).__name__}: {error})"]


def _run_problems(store: Store) -> list[str]:
    shard = store.config.shards()[0]
    stored = {schema: store.read(schema, shard) for schema in (EPISODES, STEPS)}
    return run_problems(store, store.run.run_id_with(stored_policy(store, stored)[1]))


def _planned(store: Store, report: Report, *, follow: bool) -> Mapping[Shard, list[Task] | None]:
    """Plan the levels of each shard; None where they come from a place that is not followed or not there any more."""
    tasks: dict[str, list[Task] | None] = {}
    for name, env in store.run.envs.items():
        source = env.config.levels_from_elsewhere
        if refused := refused_code(env, follow=follow):
            report.problems.append(
                f"{name}: levels, rewards, frames, labels and dataset were not derived again; {refusal(refused)}"
            )
            tasks[name] = None
            continue
        if not store.run.policy().plays:
            report.notes.append(
                f"levels, replies and actions of {name} are taken as they are stored; they were imported from "
                f"{store.config.policy.options.get('source')}"
            )
            report.problems += _described(lambda store, name=name: _count_problems(store, name), store, Limits())
            tasks[name] = None
            continue
        reason = "give --sources to make them from there again"
        tasks[name] = None
        if source is None or follow:
            try:
                tasks[name] = env.plan(store.config.seed)
                continue
            except (ConfigError, GenerationError) as error:
                if source is None:
                    raise
                reason = str(error)
        report.notes.append(f"levels of {name} are taken as they are stored; they were made from {source}: {reason}")
        report.problems += _described(lambda store, name=name: _count_problems(store, name), store, Limits())
    return {
        shard: None if (planned := tasks[shard.env]) is None else planned[shard.first : shard.stop]
        for shard in store.config.shards()
    }


def _count_problems(store: Store, env: str) -> list[str]:
    """Check that the stored levels of an environment are as many as the run asks for, each once."""
    keys = [
        (row["task_id"], row["goal_idx"], row["eval_set"])
        for shard in store.config.shards()
        if shard.env == env
        for row in store.read(EPISODES, shard, ["task_id", "goal_idx", "eval_set"]).to_pylist()
    ]
    run, rollouts = store.config.environments[env], store.config.rollouts
    levels = run.tasks if run.drawn is None else len({*run.drawn})
    if not store.run.policy().plays:  # a level has as many samples as the source has
        counts = Counter(keys).values()
        if len(counts) == levels and max(counts, default=0) <= rollouts:
            return []
        expected = f"{levels} levels of at most {rollouts} episodes"
        return [f"episodes of {env}: {len(counts)} levels of up to {max(counts, default=0)}; expected {expected}"]
    if len(set(keys)) == levels and len(keys) == run.tasks * rollouts:
        return []
    expected = f"{levels} levels in {run.tasks * rollouts} episodes"
    return [f"episodes of {env}: {len(set(keys))} levels in {len(keys)} episodes; expected {expected}"]
