"""Import a source into a store: read and replay every episode, then store, label and export the episodes that agree.

The source is read twice, one episode at a time. The first pass recovers levels, replays and compares; it keeps a few
hundred bytes per episode. The second writes the shards like those of a build, with receipts, so that the same command
resumes after a kill.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from ..core.admission import allowing
from ..core.errors import ConfigError, StoreError
from ..core.identity import canonical_json
from ..core.plugins import STORED
from ..core.progress import Reporter
from ..core.records import to_row
from ..core.storage import Address, open_storage, parse_address
from ..datasets.store.config import PartConfig, RunConfig, env_config, make_config
from ..datasets.store.imports import IMPORTS, audit_record
from ..datasets.store.stages import Pending, Product, RolloutStage, ShardResult, rare_collections
from ..datasets.store.store import AUDIT, DATASET_FOLDER, RUN, Store
from ..environments.turns import Reply, Turn
from ..flows.engines.base import WorkerPool
from ..flows.pipeline import BuildResult, complete_result, label_and_export, refuse_foreign_folder, seal_store
from ..flows.running import Running, pool_of, public
from ..rollouts.base import EndOfLogError, Policy, TaskRollouts, episode_id
from ..rollouts.loop import roll_out_tasks
from ..rollouts.policies import ImportedPolicy
from ..rollouts.policies.imported import Compared, Imported, ImportedSettings
from .audit import Finding
from .base import UnreadableError
from .episode import RecordedEpisode
from .levels import Prompts, calls_of, replies_of, slots_of
from .reading import EPISODES_AT_ONCE, Entry, EnvPlan, Problem, Reading, digest_of

IMPORT = "import"
REQUIRED = (Compared.END, Compared.STATES)


@dataclass(frozen=True, slots=True)
class ImportResult:
    """The outcome of an import."""

    build: BuildResult | None
    """Counts of the store; None after a dry run, or when no episode could be imported."""
    episodes: int
    """Episodes of the source that are in the store."""
    problems: Sequence[Problem]
    """Episodes that are not, in the order of the source."""
    compared: Mapping[Compared, Counter[bool | None]] = field(default_factory=dict)
    """Counts of agreement (True, False, or None where nothing was recorded) by kind, over the stored episodes."""
    yields: Sequence[Mapping[str, Any]] = ()
    """Counts of the episodes of each environment, from reading to the store."""
    repeated: int = 0
    """Number of places with the same episode as an earlier place."""
    remedies: Sequence[str] = ()
    """Remedies for episodes that were left out."""


@public
def import_rollouts(
    source: str | Path,
    out: str | Address,
    *,
    format: str = "jsonl",
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    require: Sequence[str] = REQUIRED,
    options: Mapping[str, Any] | None = None,
    model: str = "",
    config: Mapping[str, Any] | None = None,
    **running: Unpack[Running],
) -> ImportResult:
    """Read rollouts of another program into a store; later stages treat it like a build.

    Every episode is replayed. One whose replay differs in what ``require`` names is left out and reported, as is one
    that cannot be read. A failure of navigation without a state gets a lower bound in the table ``imports``.

    Args:
        source: file or folder.
        out: folder or address of the store; new, empty, or begun by the same call.
        format: registered format of the source.
        settings: settings of environments that replace the recorded ones, such as ``{"sokoban": {"horizon": 20}}``.
        require: any of ``end``, ``states``, ``rewards`` and ``frames``; what was not recorded is not compared.
        options: settings of the format, such as ``{"env": "sokoban", "separator": ","}`` for chats.
        model: the model that acted.
        config: other fields of the run config that decide labels and dataset, such as ``teacher`` or ``split``.
        **running: workers, reporter, engine, address and allow: :class:`~pivot.flows.running.Running`.

    Returns:
        Counts of the store, the episodes that were left out with their reasons, and counts of matching replays by
        aspect.

    Raises:
        ConfigError, PluginError: the source, the format or a setting cannot be used.
        StoreError: the folder holds something else, the source changed meanwhile, or the disk fails.
    """
    root, names = parse_address(out), {each.value: each for each in Compared}
    if unknown := [each for each in require if each not in names]:
        raise ConfigError(f"require: found {unknown[0]!r}, expected some of {', '.join(names)}")
    reading = Reading(Path(source), format, settings or {}, [names[each] for each in require], options or {})
    code = [name for env, each in (settings or {}).items() for name in env_config(env, each).code]
    reporter = running.get("reporter") or Reporter()
    with allowing(code):
        refuse_foreign_folder(open_storage(root), root)
        reading.run(reporter)
        with pool_of(running, (), root) as pool:
            return _import(reading, root, pool, reporter, model, config or {})


def _import(
    reading: Reading, root: Address, pool: WorkerPool, reporter: Reporter, model: str, config: Mapping[str, Any]
) -> ImportResult:
    storage = open_storage(root)
    compared = _compared(reading)
    episodes = sum(len(plan.entries) for plan in reading.plans.values())

    def result(build: BuildResult | None) -> ImportResult:
        return ImportResult(
            *(build, episodes, reading.problems, compared),
            yields=reading.yields(),
            repeated=reading.repeated,
            remedies=[each.text for each in reading.remedies],
        )

    if not reading.stored:
        return result(None)
    run = _config_of(reading, model, config)
    with storage.lock() as leased:
        if storage.stat(RUN) is not None:
            begun = Store.open(leased, complete=False).config
            if make_config(begun.model_dump(mode="json") | {"label_version": 1}, STORED) != run:
                raise StoreError(f"{root} holds another store, or an import of other episodes; choose another --out")
        store = Store(leased, run)
        done = complete_result(store)
        if done is not None:
            return result(done)
        store.write_run()
        results = list(_stored(store, reading, reporter))
        imported = [row for shard in run.shards() for row in store.read(IMPORTS, shard).to_pylist()]
        store.storage.write_json(
            AUDIT, audit_record(imported, reading.options, [each.text for each in reading.remedies])
        )
        return result(seal_store(store, results + label_and_export(store, pool, reporter, DATASET_FOLDER)))


def _compared(reading: Reading) -> dict[Compared, Counter[bool | None]]:
    kinds = (Compared.END, Compared.STATES, Compared.REWARDS, Compared.FRAMES)
    entries = [entry for plan in reading.plans.values() for entry in plan.entries]
    return {kind: Counter(entry.taken.agreement[index] for entry in entries) for index, kind in enumerate(kinds)}


def _config_of(reading: Reading, model: str, more: Mapping[str, Any]) -> RunConfig:
    """Return the config of the store; it does not depend on anything but the source and the options."""
    plans = reading.stored
    largest = max((count for plan in plans.values() for count in plan.samples.values()), default=1)
    origin = ImportedSettings(
        format=reading.format,
        source=reading.source.resolve().name,
        digest=reading.digest,
        model=model,
        require=tuple(each.value for each in reading.require),
    )
    environments = {
        name: {"tasks": len(plan.tasks), "settings": plan.env.config.model_dump(mode="json")}
        for name, plan in plans.items()
    }
    return make_config(
        {
            "tasks_per_shard": _tasks_per_shard(plans.values()),
            **more,
            "environments": environments,
            "rollouts": largest,
            "policy": PartConfig(name="imported", options=origin.model_dump(mode="json")).model_dump(mode="json"),
        },
        STORED,
    )


def _tasks_per_shard(plans: Iterable[EnvPlan]) -> int:
    """Return the maximum number of levels per shard, so that it has at most about twice ``EPISODES_AT_ONCE``."""
    counts = [[plan.samples[task] for task in range(len(plan.tasks))] for plan in plans]
    size = 128
    while size > 1 and any(
        sum(each[first : first + size]) > 2 * EPISODES_AT_ONCE for each in counts for first in range(0, len(each), size)
    ):
        size //= 2
    return size


def _stored(store: Store, reading: Reading, reporter: Reporter) -> Iterator[ShardResult]:
    """Write the shards, and yield their results."""
    reporter.start(IMPORT, sum(len(plan.entries) for plan in reading.plans.values()))
    shards = store.config.shards()
    by_task: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for name, plan in reading.stored.items():
        for entry in plan.entries:
            by_task[name, entry.task].append(entry)
    for shard in shards:
        plan = reading.stored[shard.env]
        entries = [entry for task in range(shard.first, shard.stop) for entry in by_task[shard.env, task]]
        problems = reading.problems if shard is shards[0] else ()
        stage = _ImportStage(store, shard, plan.tasks[shard.first : shard.stop], reading, entries, problems)
        result = stage.check()
        if isinstance(result, Pending):
            with rare_collections():
                result = stage.write(result, stage.make(result))
        yield result
        reporter.advance(IMPORT, len(entries))
    reporter.finish(IMPORT)


@dataclass(frozen=True)
class _ImportStage(RolloutStage):
    """Stores the imported episodes of a shard; runs in the process that read the source."""

    reading: Reading
    entries: Sequence[Entry]
    problems: Iterable[Problem]

    def make(self, pending: Pending) -> Product:
        """Execute the recorded actions once more, as a rollout, and keep their origin."""
        run, env = self.store.run, self.store.run.envs[self.shard.env]
        policy = run.policy()
        rows, replies = [], {}
        with_env = self.reading.stored[self.shard.env].env
        for entry in self.entries:
            episode = self._again(entry)
            task = self.tasks[entry.task - self.shard.first]
            name = episode_id(
                env.type.profile,
                env.config,
                task,
                entry.sample,
                policy_name=policy.name,
                policy_config=policy.config_for(env.name),
            )
            slots = slots_of(with_env, episode)
            replies[name] = replies_of(episode, slots, Prompts(self.reading.pictures))
            starts = tuple(index for index, slot in enumerate(slots) if slot.first)
            rows.append(_row(entry, episode, name, starts))
        rows += map(_row_left_out, self.problems)
        rollouts = roll_out_tasks(
            env.type,
            env.config,
            self.tasks,
            _RecordedReplies(policy, replies),
            run.config.rollouts,
            only=set(replies),
            run_id=run.run_id,
            prompt=env.prompt,
        )
        return self._with_origins(self.product(pending, rollouts), rows, rollouts)

    def _with_origins(self, product: Product, rows: Sequence[Imported], rollouts: Sequence[TaskRollouts]) -> Product:
        steps = {episode.episode_id: episode.num_steps for task in rollouts for episode in task.episodes}
        rows = [
            row
            if row.turn_starts is None
            else replace(row, turn_starts=tuple(t for t in row.turn_starts if t < steps[row.episode_id or ""]))
            for row in rows
        ]
        name = self.store.table_file(IMPORTS, self.shard)
        return replace(product, tables=[*product.tables, (name, IMPORTS, IMPORTS.table(list(map(to_row, rows))))])

    def _again(self, entry: Entry) -> RecordedEpisode:
        """Read an episode for the second time.

        Raises:
            StoreError: the source changed.
        """
        try:
            episode = self.reading.read(entry.taken.place, entry.taken.masked)
            if digest_of(episode) == entry.taken.digest:
                return episode
        except UnreadableError:
            pass
        raise StoreError(f"{self.reading.source}: {entry.taken.place.label} changed during the import; run it again")


def _row(entry: Entry, episode: RecordedEpisode, name: str, starts: tuple[int, ...]) -> Imported:
    rewards = [turn.reward for turn in episode.turns]
    other = episode.other_fields()
    end, states, pay, frames = entry.taken.agreement
    return Imported(
        place=entry.taken.place.label,
        episode_id=name,
        source_id=episode.id,
        source_policy=episode.policy,
        state_source=entry.taken.source,
        end_agrees=end,
        states_agree=states,
        rewards_agree=pay,
        frames_agree=frames,
        turn_starts=starts,
        recorded_rewards=None if None in rewards else tuple(each for each in rewards if each is not None),
        other=canonical_json(other) if other else None,
        evidence=entry.evidence,
        calls=calls_of(episode),
        **_counts(entry.taken.finding),
    )


def _row_left_out(problem: Problem) -> Imported:
    counts = {} if problem.finding is None else _counts(problem.finding)
    return Imported(problem.place, left_out=problem.kind, detail=problem.detail, **counts, **problem.origin)


def _counts(finding: Finding) -> dict[str, Any]:
    """Return the columns of the audit."""
    return {
        "env": finding.env,
        "turns": finding.turns,
        "unread_turns": finding.unread,
        "dropped_words": finding.dropped,
        "trailing_turns": finding.trailing,
        "confirmed_turns": finding.confirmation.turns,
        "recorded_kinds": finding.recorded,
        "recorded_success": finding.success,
    }


class _RecordedReplies(Policy):
    """Gives the recorded replies under the name and config of the imported policy."""

    name = ImportedPolicy.name
    plays = False
    config_type = ImportedSettings

    def __init__(self, policy: Policy, replies: Mapping[str, Sequence[Reply]]) -> None:
        """Repeat ``replies``, by episode."""
        self._config, self._replies = policy.config, replies

    @property
    def config(self) -> dict[str, Any]:
        """The config of the imported policy."""
        return self._config

    async def reply(self, turn: Turn) -> Reply:
        """Give the recorded reply.

        Raises:
            EndOfLogError: the log ends before this turn.
        """
        replies = self._replies[turn.episode_id]
        if turn.t >= len(replies):
            raise EndOfLogError(f"the imported log of {turn.episode_id} ends before step {turn.t}")
        return replies[turn.t]
