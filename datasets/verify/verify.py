"""``pivot verify``: make a store once more in memory and compare, then prove each label by a second search.

Nothing that the store says about itself is trusted but its config: the stages of the build run again from ``run.json``
and the words of models, and their tables are compared with the stored ones. The manifest is checked too, but every
change of a row is found without it. The config is trusted to say what was made, not where to
look: no path that it names is followed unless the user says so.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

from ...core.admission import refusal
from ...core.errors import ConfigError, ForbiddenError, GenerationError, StoreError
from ...core.progress import Reporter
from ...core.storage import Address
from ...environments.base import Task
from ..store.config import Shard
from ..store.dataset_rows import ShardSplit, plan_split
from ..store.location import refuse_while_written
from ..store.schema import EPISODES, STEPS
from ..store.stages import LabelStage
from ..store.store import MANIFEST, PROBE_FOLDER, Store, refuse_unfinished_relabel
from .files import card_problems, file_problems, run_problems
from .imports import import_problems
from .replay import stored_policy
from .report import Report
from .shard import refused_code, verify_shard
from .views import view_problems

Stream = Callable[[Callable[..., Report], Sequence[tuple[Any, ...]]], Iterator[Report]]
STAGE = "verify"


def verify_store(root: Address, progress: Reporter, stream: Stream | None = None, *, follow: bool = False) -> Report:
    """Verify a finished store; ``stream`` runs the shards, by default one by one in this process.

    With ``follow`` the places that ``run.json`` names (folders of targets, task files, checkpoints) are read.

    Raises:
        StoreError: the store at ``root`` is missing or unfinished, a run writes it, its last one was interrupted, or
            one of its files may not be read.
        GenerationError, PluginError, ConfigError: its config cannot be carried out here, so nothing can be derived.
    """
    refuse_while_written(root)
    store = Store.open(root)
    refuse_unfinished_relabel(root)
    before = store.storage.stat(MANIFEST)
    report = _verify(store, progress, stream or starmap, follow=follow)
    refuse_while_written(root)
    if store.storage.stat(MANIFEST) != before:
        raise StoreError(f"{root} was changed by a run while it was verified; verify it again")
    return report


def _verify(store: Store, progress: Reporter, stream: Stream, *, follow: bool) -> Report:
    report = Report()
    for check in (file_problems, _run_problems):
        report.problems += _described(check, store)
    tasks: dict[Shard, list[Task] | None] = {}
    split: dict[Shard, ShardSplit] = {}

    def split_shards(store: Store) -> list[str]:
        split.update(plan_split(store))
        return []

    tasks.update(_planned(store, report, follow=follow))
    report.problems += _described(split_shards, store)
    shards = store.config.shards()
    episodes = {shard: LabelStage(store, shard).episodes for shard in shards}
    progress.start(STAGE, sum(episodes.values()))
    arguments = [(store.root, store.config, shard, tasks[shard], split.get(shard), follow) for shard in shards]
    reports: dict[Shard, Report] = {}
    for part in stream(verify_shard, arguments):
        assert part.shard is not None
        reports[part.shard] = part
        progress.advance(STAGE, episodes[part.shard])
    progress.finish(STAGE)
    for shard in shards:
        report.add("", reports[shard])
    if prose := sum(each.prose for each in reports.values()):
        report.notes.append(
            f"the guidance of {prose} accepted labels is prose and was not proved: the run asked for free text of the "
            "teacher; render it from facts with: pivot relabel --guidance facts"
        )
    if any(name.startswith(f"{PROBE_FOLDER}/") for name in store.manifest()):
        report.notes.append("the retries of the probe are unproved: only the digests of their files were compared")
    if simulated := sorted({shard.env for shard in shards if reports[shard].simulated}):
        report.notes.append(
            f"rewards and pictures of {', '.join(simulated)} are unproved: its simulator draws no picture twice, so "
            "they were taken as they are stored"
        )
    if any(refused_code(env, follow=follow) for env in store.run.envs.values()):
        report.notes.append("card and views were not derived: they need the labels")
        return report
    for check in (card_problems, view_problems, *((import_problems,) if store.is_imported else ())):
        report.problems += _described(check, store)
    report.vouches_for(store)
    return report


def _described(check: Callable[[Store], list[str]], store: Store) -> list[str]:
    """Run a check of untrusted files; an error in it becomes a problem of the store."""
    try:
        return check(store)
    except (ForbiddenError, MemoryError):
        raise  # nothing is known of the store then
    except StoreError as error:
        return [str(error)]
    except Exception as error:  # noqa: BLE001 - files that nobody can read break it in any way
        return [f"{store.root}: its files do not fit together ({type(error).__name__}: {error})"]


def _run_problems(store: Store) -> list[str]:
    shard = store.config.shards()[0]
    stored = {schema: store.read(schema, shard) for schema in (EPISODES, STEPS)}
    policy = stored_policy(store, stored) or store.run.policy()
    return run_problems(store, store.run.run_id_with(policy.config))


def _planned(store: Store, report: Report, *, follow: bool) -> Mapping[Shard, list[Task] | None]:
    """Plan the levels of each shard; None if they come from files that are missing or not followed."""
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
            report.problems += _described(lambda store, name=name: _count_problems(store, name), store)
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
        report.problems += _described(lambda store, name=name: _count_problems(store, name), store)
    return {
        shard: None if (planned := tasks[shard.env]) is None else planned[shard.first : shard.stop]
        for shard in store.config.shards()
    }


def _count_problems(store: Store, env: str) -> list[str]:
    """Check that an environment has as many stored levels as the run requests, each once."""
    keys = [
        (row["task_id"], row["goal_idx"], row["eval_set"])
        for shard in store.config.shards()
        if shard.env == env
        for row in store.read(EPISODES, shard, ["task_id", "goal_idx", "eval_set"]).to_pylist()
    ]
    run, rollouts = store.config.environments[env], store.config.rollouts
    levels = run.tasks if run.drawn is None else len({*run.drawn})
    if not store.run.policy().plays:  # a level has as many samples as in the source
        counts = Counter(keys).values()
        if len(counts) == levels and max(counts, default=0) <= rollouts:
            return []
        expected = f"{levels} levels of at most {rollouts} episodes"
        return [f"episodes of {env}: {len(counts)} levels of up to {max(counts, default=0)}; expected {expected}"]
    if len(set(keys)) == levels and len(keys) == run.tasks * rollouts:
        return []
    expected = f"{levels} levels in {run.tasks * rollouts} episodes"
    return [f"episodes of {env}: {len(set(keys))} levels in {len(keys)} episodes; expected {expected}"]
