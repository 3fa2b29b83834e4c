"""Bounds on the pivots of failures by resampling, for environments that can be replayed but not searched.

``t* >= t`` is proven by a run: the failure's own actions before step t, then actions that reach the goal in the turns
left. The run is written into the row and re-executed before it counts, and :func:`bound_problems` does so again. What
the retries after it say is a bound on the chance of the policy that made them; see :mod:`.bisect`. Such rows are not
labels: they are in a file of their own, which no split contains.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ... import admission
from ...datasets.config import PartConfig
from ...datasets.progress import Reporter
from ...datasets.run import Run
from ...datasets.schema import EPISODES, LABELS, STEPS
from ...datasets.store import Store
from ...datasets.tables import steps_by_episode
from ...environments.base import ParsedAction, PivotEnv, Task
from ...errors import PivotError, StoreError
from ...plugins import Settings
from ...rollouts.base import Episode, ParsedReply, Policy, Reply, ReplyOutcome, Status, TaskRollouts, Turn
from ...rollouts.ids import episode_id
from ...rollouts.loop import Batch, run_batches
from ...storage import Address
from .bisect import RULE_OF_THREE, Bisection, reached_step

STAGE = "bound"
_TASK_FIELDS = ("task_id", "seed", "initial_state", "instruction", "goal_idx", "eval_set")


class BoundSettings(Settings):
    """Settings of a search for bounds."""

    retries: int = Field(default=16, ge=1, le=1000)
    """Expected number of retries per success; used to choose the next step to retry."""
    budget: int | None = Field(default=None, ge=1)
    """Maximum number of retries of a failure; by default three times ``retries``."""
    together: int = Field(default=4, ge=1)
    """Retries of a failure that are played together; a model answers them at the same time."""
    certified: bool = False
    """Also bound failures that have a pivot with an exact certificate, to compare."""


class BoundRow(BaseModel):
    """The bound of one failure."""

    model_config = ConfigDict(extra="forbid")

    episode_id: str
    env: str
    num_steps: int
    proven: int
    """Step t for which t* >= t is proved."""
    actions: list[str] | None
    """Actions from that step on that reach the goal; null for step 0, which needs none."""
    payloads: list[str | None] | None
    tried: dict[int, int]
    """Failed retries by step."""
    retries: int
    chance_step: int | None
    """Step after the proven one, if retries began there."""
    chance_at_most: float | None
    """Bound on the chance of this policy to succeed from there, at 95 %."""
    policy: str
    policy_config: dict[str, Any]
    kind: str = STAGE


@dataclass
class _Failure:
    """A failure under search."""

    task: Task
    sample_idx: int
    steps: Sequence[Mapping[str, Any]]
    env: str
    search: Bisection
    plan: tuple[list[str], list[str | None]] | None = None
    unplayed: int = 0
    errors: int = 0

    @property
    def episode_id(self) -> str:
        return str(self.steps[0]["episode_id"])


@dataclass(frozen=True)
class BoundResult:
    """The outcome of a search for bounds."""

    rows: Sequence[BoundRow]
    errors: int
    """Retries that the policy or the environment did not finish; they count neither way."""


class _Resampling(Policy):
    """Repeats the logged actions up to a step, then asks the policy."""

    config_type = Settings

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name  # pyright: ignore[reportAttributeAccessIssue] - one class, many names
        self.episode_seconds = policy.episode_seconds
        self.planned: dict[str, tuple[_Failure, int]] = {}
        self._policy = policy

    @property
    def episodes_in_flight(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._policy.episodes_in_flight

    @property
    def config(self) -> dict[str, Any]:
        return {**self._policy.config, STAGE: 1}

    def config_for(self, env: str) -> dict[str, Any]:
        """Return the config for one environment, with a mark that its episodes are retries."""
        return {**self._policy.config_for(env), STAGE: 1}

    async def reply(self, turn: Turn) -> Reply:
        """Answer one turn; the errors are those of the policy."""
        failure, start = self.planned[turn.episode_id]
        if turn.t >= start:
            return await self._policy.reply(turn)
        logged = failure.steps[turn.t]
        unusable = logged["action"] == turn.env.profile.unusable_action
        action = None if unusable else ParsedAction(logged["action"], logged["payload"])
        outcome = ReplyOutcome(logged["reply_outcome"])
        return Reply(logged["response"], parsed=ParsedReply(action, logged["action_valid"], outcome))

    async def aclose(self) -> None:
        """Close the policy."""
        await self._policy.aclose()


def bound_store(
    root: Address, out: Path, settings: BoundSettings, reporter: Reporter, policy: PartConfig | None = None
) -> BoundResult:
    """Bound the pivots of the failures of a finished store, and write a line per failure to ``out``.

    Args:
        root: the store.
        out: JSON lines, replaced.
        settings: number of retries.
        reporter: receives the progress, in failures.
        policy: plays the retries; by default the policy of the store.

    Raises:
        ConfigError, PluginError: the policy cannot play, or an environment is not installed.
        StoreError: the store cannot be read, or ``out`` not be written.
        ServerGoneError: the model stopped answering. NotAllowedError: this call does not allow an environment.
    """
    store = Store.open(root)
    admission.require(store.config.code)
    run = store.run if policy is None else Run(store.config.model_copy(update={"policy": policy}))
    player = run.policy()
    player.check()
    work = _Work(store, run, settings, _Resampling(player), reporter)
    reporter.start(STAGE, len(work.failures))
    if work.failures:
        asyncio.run(work.play())
    reporter.finish(STAGE)
    rows = [work.row(failure) for failure in work.failures]
    try:
        half = out.with_name(f".{out.name}.tmp")
        half.write_text("".join(row.model_dump_json() + "\n" for row in rows), encoding="utf-8")
        half.replace(out)
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror}; name another file with --out") from error
    return BoundResult(rows, sum(failure.errors for failure in work.failures))


@dataclass
class _Work:
    """All failures of a store, and the retries that are out."""

    store: Store
    run: Run
    settings: BoundSettings
    policy: _Resampling
    reporter: Reporter
    failures: list[_Failure] = field(init=False)

    def __post_init__(self) -> None:
        self.failures = _failures_of(self.store, self.settings)
        self._checkers: dict[str, PivotEnv] = {}

    async def play(self) -> None:
        """Play the retries of all failures, round by round, in one event loop."""
        loop, settled = asyncio.get_running_loop(), asyncio.Event()
        left: list[Batch] = []

        def receive(batch: Batch, records: list[TaskRollouts]) -> None:
            self._receive(batch.work, records)
            left.pop()
            if not left:
                loop.call_soon_threadsafe(settled.set)

        async def batches() -> AsyncIterator[Batch]:
            while planned := self._plan():
                settled.clear()
                left.extend(planned)
                for batch in planned:
                    yield batch
                await settled.wait()

        try:
            await run_batches(batches(), self.policy, receive)
        finally:
            for env in self._checkers.values():
                env.close()

    def _plan(self) -> list[Batch]:
        """Return a batch of retries per open failure; the last round's are over."""
        self.policy.planned.clear()
        planned: list[Batch] = []
        for failure in self.failures:
            step = failure.search.next_step()
            if step is None or failure.errors >= self.settings.retries:
                continue
            env = self.run.env(failure.env)
            count = min(self.settings.together, failure.search.budget - failure.search.played)
            first = (failure.sample_idx * 1000 + step) * 1_000_000 + failure.unplayed
            failure.unplayed += count
            indices = range(first, first + count)
            for index in indices:
                name = episode_id(
                    env.type.profile,
                    env.config,
                    failure.task,
                    index,
                    policy_name=self.policy.name,
                    policy_config=self.policy.config_for(failure.env),
                )
                self.policy.planned[name] = failure, step
            work = failure, step
            planned.append(
                Batch(env.type, env.config, [failure.task], count, prompt=env.prompt, work=work, samples=indices)
            )
        return planned

    def _receive(self, work: tuple[_Failure, int], records: Sequence[TaskRollouts]) -> None:
        failure, step = work
        search = failure.search
        for episode in (each for record in records for each in record.episodes):
            if episode.status is not Status.COMPLETE:
                failure.errors += 1
            elif search.played < search.budget:
                search.add(step, self._proved(failure, step, episode) if episode.success else None)
        if search.next_step() is None or failure.errors >= self.settings.retries:
            self.reporter.advance(STAGE, 1)

    def _proved(self, failure: _Failure, step: int, episode: Episode) -> int | None:
        """Return the latest step that a successful retry proves by re-execution; None if it cannot be repeated."""
        states = [row["state"] or "" for row in failure.steps], [each.state or "" for each in episode.steps]
        latest = reached_step(states[0], states[1], step) if all(map(all, states)) else step
        for reached in dict.fromkeys((latest, step)):
            times = [t for t, state in enumerate(states[1]) if t >= reached and state == states[0][reached]]
            begin = times[-1] if reached > step else step
            suffix = episode.steps[begin:]
            plan = [each.action for each in suffix], [each.payload for each in suffix]
            if self._repeats(failure, reached, *plan):
                if reached > failure.search.proven:
                    failure.plan = plan
                return reached
        return None

    def _repeats(self, failure: _Failure, step: int, actions: Sequence[str], payloads: Sequence[str | None]) -> bool:
        env = self._checkers.get(failure.env)
        if env is None:
            made = self.run.env(failure.env)
            env = self._checkers[failure.env] = made.type(made.config)
            env.draw_frames = False
        return reaches_goal(env, failure.task, failure.steps[:step], actions, payloads)

    def row(self, failure: _Failure) -> BoundRow:
        """Return the row of a failure."""
        search = failure.search
        after = search.proven + 1 if search.chance_after is not None else None
        actions, payloads = failure.plan or (None, None)
        return BoundRow(
            episode_id=failure.episode_id,
            env=failure.env,
            num_steps=len(failure.steps),
            proven=search.proven,
            actions=actions,
            payloads=payloads,
            tried=dict(sorted(search.failures.items())),
            retries=search.played,
            chance_step=after,
            chance_at_most=search.chance_after,
            policy=self.policy.name,
            policy_config=self.policy.config_for(failure.env),
        )


def _failures_of(store: Store, settings: BoundSettings) -> list[_Failure]:
    failures: list[_Failure] = []
    budget = settings.budget or 3 * settings.retries
    for shard in store.config.shards():
        steps = steps_by_episode(store.read(STEPS, shard).to_pylist())
        labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
        for row in store.read(EPISODES, shard).to_pylist():
            certificate = (labels.get(row["episode_id"]) or {}).get("certificate")
            if not row["failed"] or (certificate and certificate["kind"] == "exact" and not settings.certified):
                continue
            mine = steps[row["episode_id"]]
            task = Task(**{name: row[name] for name in _TASK_FIELDS})
            search = Bisection(len(mine) - 1, settings.retries, budget)
            failures.append(_Failure(task, row["sample_idx"], mine, row["env"], search))
    return failures


def reaches_goal(
    env: PivotEnv,
    task: Task,
    logged: Sequence[Mapping[str, Any]],
    actions: Sequence[str],
    payloads: Sequence[str | None],
) -> bool:
    """Re-execute logged steps and then some actions; return whether the goal is reached within the budget."""
    plays = [(step["action"], step["payload"]) for step in logged] + list(zip(actions, payloads, strict=True))
    returned = 0.0
    try:
        env.reset(options={"state": task.initial_state, "instruction": task.instruction})
        for t, (action, payload) in enumerate(plays):
            _, reward, terminated, truncated, info = env.step(env.encode_action(action, payload))
            returned += float(reward)
            if terminated or truncated:
                won = bool(info["success"]) if env.profile.has_success_bit else returned >= env.success_return
                return won and t == len(plays) - 1
    except (PivotError, ValueError):
        return False
    return False


def bound_problems(root: Address, path: Path) -> list[str]:
    """Return what is wrong with a file of bounds: every run is executed again, and every number is compared.

    Raises:
        StoreError: the store or the file cannot be read.
    """
    store = Store.open(root)
    admission.require(store.config.code)
    failures = {each.episode_id: each for each in _failures_of(store, BoundSettings(certified=True))}
    problems: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        try:
            row = BoundRow.model_validate_json(line)
        except ValidationError as error:
            problems.append(f"line {number}: {error.errors(include_url=False)[0]['msg']}")
            continue
        failure = failures.get(row.episode_id)
        wrong = "the store has no such failure" if failure is None else _wrong(store, row, failure)
        problems += [f"line {number}: {wrong}"] if wrong else []
    return problems


def _wrong(store: Store, row: BoundRow, failure: _Failure) -> str | None:
    count = row.tried.get(row.proven + 1, 0)
    bound = min(1.0, RULE_OF_THREE / count) if count else None
    if row.env != failure.env or row.num_steps != len(failure.steps) or not 0 <= row.proven < row.num_steps:
        return f"the failure has {len(failure.steps)} steps of {failure.env}, the row says {row.num_steps} of {row.env}"
    if row.chance_at_most != bound or row.chance_step != (row.proven + 1 if count else None):
        return f"{count} failed retries bound the chance by {bound}, the row says {row.chance_at_most}"
    if row.proven == 0:
        return None
    if row.actions is None or row.payloads is None or len(row.actions) != len(row.payloads):
        return f"it claims t* >= {row.proven} without a run"
    made = store.run.env(row.env)
    env = made.type(made.config)
    env.draw_frames = False
    try:
        if not reaches_goal(env, failure.task, failure.steps[: row.proven], row.actions, row.payloads):
            return f"its run from step {row.proven} does not reach the goal"
    finally:
        env.close()
    return None


def rows_of(path: Path) -> list[BoundRow]:
    """Read a file of bounds."""
    return [BoundRow(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
