"""Arm ``bound``: bounds on the pivots of failures by resampling, where an environment can be replayed but not searched.

``t* >= t`` is proven by a run: the failure's own actions before step t, then actions that reach the goal in the turns
left. The run is written into the row and re-executed before it counts. What the retries after it say is a bound on the
chance of the policy that made them; see :class:`Bisection`. Such rows are not labels: they are in a table of the probe,
which no split contains.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from ...core.errors import ConfigError, PivotError
from ...core.identity import canonical_json, digest
from ...core.records import from_row, to_row
from ...core.storage import Address
from ...datasets.store.config import PartConfig, RunConfig, Shard
from ...datasets.store.parquet import read_table
from ...datasets.store.run import Run
from ...datasets.store.schema import EPISODES, LABELS, STEPS
from ...datasets.store.stages import PENDING_EPISODES, Pending, Product, ShardFiles, ShardResult
from ...datasets.store.store import Store
from ...datasets.store.tables import steps_by_episode
from ...environments.base import ParsedAction, PivotEnv, Task
from ...environments.turns import ParsedReply, Reply, ReplyOutcome, Turn
from ...rollouts.base import Batch, Episode, Status, TaskRollouts, episode_id
from ...rollouts.episode import ENDS_THE_RUN
from ...rollouts.scheduler import run_batches, run_without_gc_pauses
from .records import BOUND, BOUNDS, RECEIPTS, VERSION, Bound, ProbeSettings, bounds_file
from .shard import Planned, RollbackPolicy, ShardDone

RULE_OF_THREE = 3.0
"""-ln(0.05), rounded up: with a chance above 3/n, n failures in a row have a probability below 5 %."""


@dataclass(slots=True)
class Bisection:
    """Search for the latest step of one failure from which retries succeed; step 0 needs none, because t* >= 0.

    A retry from step t that reaches the goal within the turns left proves that the state before step t was not lost,
    so t* >= t. So does one from an earlier step that comes through the failure's state before step t, at that step or
    later. Failures prove nothing: 0 successes of n retries bound the chance of the policy that made them by 3/n (the
    rule of three, at 95 %), and say nothing about other policies. No probability of a step is reported: how often a
    policy succeeds from a step that is not lost is unknown, so that none can be identified.

    The search is a bisection with noise: every open step has a weight, a failure from a step lowers the weights of
    that step and of all later ones, and the next retry begins at the step that has half of the weight above it. The
    weights decide where to look, and nothing else.
    """

    last: int
    """Last step of the episode, T - 1: no pivot is later."""
    retries: int
    """Retries after which a step without a success gets less weight; the weights assume a chance of 1 / ``retries``."""
    budget: int
    """Most retries in all."""
    proven: int = 0
    """Latest step proven not to be lost before it: t* is at least this."""
    failures: dict[int, int] = field(default_factory=dict[int, int])
    """Failed retries by step."""
    played: int = 0

    def next_step(self) -> int | None:
        """Return the step of the next retry; None when the search is over."""
        if self.played >= self.budget or self.proven >= self.last:
            return None
        loss = math.log1p(-min(0.5, 1 / self.retries))
        weights, exponent = [1.0], 0.0
        for step in range(self.proven + 1, self.last + 1):
            exponent += loss * self.failures.get(step, 0)
            weights.append(math.exp(exponent))
        half, above, step = sum(weights) / 2, weights[-1], self.last
        while above < half and step > self.proven + 1:
            step -= 1
            above += weights[step - self.proven]
        return step

    def add(self, step: int, reached: int | None) -> None:
        """Add the outcome of a retry from ``step``: the latest step that its success proves, None for a failure."""
        self.played += 1
        if reached is None:
            self.failures[step] = self.failures.get(step, 0) + 1
        else:
            self.proven = max(self.proven, reached)

    @property
    def chance_after(self) -> float | None:
        """Bound on the policy's chance from the step after ``proven``; None if no retry began there."""
        count = self.failures.get(self.proven + 1, 0)
        return min(1.0, RULE_OF_THREE / count) if count else None


def reached_step(failure: list[str], retry: list[str], start: int) -> int:
    """Return the latest step of a failure that a successful retry proves not to be lost before.

    Args:
        failure: states before the steps of the failure, which decide everything that follows.
        retry: states before the steps of the retry, from the first step of the episode on.
        start: step that the retry began at.
    """
    times = {state: t for t, state in enumerate(retry)}  # the latest time of each state
    return max([start, *(t for t, state in enumerate(failure) if times.get(state, -1) >= t)])


_TASK_FIELDS = ("task_id", "seed", "initial_state", "instruction", "goal_idx", "eval_set")
_TOGETHER = 4
"""Retries of a failure that are played together; a model answers them at the same time."""


@dataclass
class _Failure:
    """A failure under search."""

    task: Task
    sample_idx: int
    steps: Sequence[Mapping[str, Any]]
    env: str
    search: Bisection
    plan: tuple[list[str], list[str | None]] | None = None
    begun: int = 0
    errors: int = 0

    @property
    def episode_id(self) -> str:
        return str(self.steps[0]["episode_id"])


class _Resampling(RollbackPolicy):
    """Repeats the logged actions up to a step, then asks the policy."""

    mark: ClassVar[Mapping[str, Any]] = {BOUND: 1}

    def logged(self, turn: Turn, step: Mapping[str, Any]) -> Reply:
        """Return a logged reply with its stored parse result."""
        unusable = step["action"] == turn.env.profile.unusable_action
        action = None if unusable else ParsedAction(step["action"], step["payload"])
        outcome = ReplyOutcome(step["reply_outcome"])
        return Reply(step["response"], parsed=ParsedReply(action, step["action_valid"], outcome))


@dataclass(frozen=True)
class BoundFiles(ShardFiles):
    """File of the bounds of one shard."""

    title: ClassVar[str] = BOUND

    @property
    def receipt_file(self) -> str:
        """Name of the receipt, next to those of the other arms."""
        return f"{RECEIPTS}/bounds/{self.shard.stem}.json"

    def inputs(self) -> str:
        """Return the digest of the episodes; searches continue under other settings."""
        manifest = self.store.manifest()
        names = [self.store.table_file(schema, self.shard) for schema in (EPISODES, STEPS)]
        files = [manifest[name].sha256 for name in names if name in manifest]
        return digest({"version": VERSION, "files": files})

    def earlier(self) -> dict[str, Bound]:
        """Return the rows of an earlier run by failure."""
        return bounds_of(self.store, self.shard) if isinstance(self.check(), ShardResult) else {}

    def product(self, rows: Sequence[Bound]) -> Product:
        """Return the table of bounds."""
        table = BOUNDS.table([to_row(row) for row in rows])
        return Product(
            [(bounds_file(self.shard), BOUNDS, table)], {PENDING_EPISODES: sum(not row.is_over for row in rows)}
        )


def bounds_of(store: Store, shard: Shard) -> dict[str, Bound]:
    """Return the stored bounds of a shard by failure.

    Raises:
        StoreError: the file is missing or torn.
    """
    table = read_table(store.storage, bounds_file(shard), BOUNDS)
    return {row["episode_id"]: from_row(Bound, row) for row in table.to_pylist()}


def run_of(store: Store, policy: PartConfig | None) -> Run:
    """Return the run of a store, with another policy if one is named."""
    same = policy in (None, store.config.policy)
    return store.run if same else Run(store.config.model_copy(update={"policy": policy}))


def refuse_other_policy(store: Store, policy: PartConfig | None) -> None:
    """Refuse to continue searches of another policy: the bound on a chance counts the retries of one.

    Raises:
        ConfigError: another policy played the stored retries.
    """
    player = _Resampling(run_of(store, policy).policy(), {})
    for shard in store.config.shards():
        config = canonical_json(player.config_for(shard.env))
        for row in BoundFiles(store, shard).earlier().values():
            if row.retries and (row.policy, row.policy_config) != (player.name, config):
                raise ConfigError(
                    f"{store.root} holds retries in the arm {BOUND} by the policy {row.policy} {row.policy_config}, "
                    f"not by {player.name} {config}; ask for that one with --policy, or delete its folder probe"
                )


def bound_shard(
    root: Address, config: RunConfig, settings: ProbeSettings, policy: PartConfig | None, shard: Shard
) -> ShardDone:
    """Bound the failures of one shard, and write a row for each; an interruption keeps the finished retries.

    Args:
        root: the store.
        config: its config.
        settings: settings of the probe.
        policy: plays the retries; by default the policy of the store.
        shard: a shard of it.

    Raises:
        StoreError: the store cannot be read or written. ServerGoneError: the model stopped answering.
    """
    store = Store(root, config)
    run = run_of(store, policy)
    player = _Resampling(run.policy(), {})
    files = BoundFiles(store, shard)
    work = _Work(run, settings, player, _failures_of(store, shard, settings, files.earlier()))
    before = work.played

    def write() -> ShardDone:
        result = files.write(Pending(files.inputs()), files.product([work.row(failure) for failure in work.failures]))
        return ShardDone(shard, result.files, work.played, work.played - before)

    try:
        work.play()
    except (*ENDS_THE_RUN, KeyboardInterrupt):
        write()  # a retry costs a model as much as a rollout
        raise
    return write()


@dataclass
class _Work:
    """The failures of a shard, and the retries that are out."""

    run: Run
    settings: ProbeSettings
    policy: _Resampling
    failures: Sequence[_Failure]
    checkers: dict[str, PivotEnv] = field(default_factory=dict[str, PivotEnv])

    @property
    def played(self) -> int:
        """Number of finished retries."""
        return sum(failure.search.played for failure in self.failures)

    def is_over(self, failure: _Failure) -> bool:
        """Return whether no retry of a failure is left to begin."""
        return failure.search.next_step() is None or failure.errors >= self.settings.retries

    def play(self) -> None:
        """Play the retries of all failures, round by round."""
        try:
            while planned := self._plan():
                run_without_gc_pauses(run_batches(planned, self.policy, self._receive))
        finally:
            for env in self.checkers.values():
                env.close()

    def _plan(self) -> list[Batch]:
        """Return a batch of retries per open failure; the last round's are over."""
        self.policy.planned.clear()
        planned: list[Batch] = []
        for failure in self.failures:
            step = failure.search.next_step()
            if step is None or self.is_over(failure):
                continue
            env = self.run.envs[failure.env]
            count = min(_TOGETHER, failure.search.budget - failure.search.played)
            first = (failure.sample_idx * 1000 + step) * 1_000_000 + failure.begun
            failure.begun += count
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
                self.policy.planned[name] = Planned(cast(Any, failure), step, None)
            work = failure, step
            planned.append(
                Batch(env.type, env.config, [failure.task], count, prompt=env.prompt, work=work, samples=indices)
            )
        return planned

    def _receive(self, batch: Batch, records: Sequence[TaskRollouts]) -> None:
        failure, step = batch.work
        search = failure.search
        for episode in (each for record in records for each in record.episodes):
            if episode.status is not Status.COMPLETE:
                failure.errors += 1
            elif search.played < search.budget:
                search.add(step, self._proved(failure, step, episode) if episode.success else None)

    def _proved(self, failure: _Failure, step: int, episode: Episode) -> int | None:
        """Return the latest step that a successful retry proves by re-execution; None if it does not repeat."""
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
        env = self.checkers.get(failure.env)
        if env is None:
            made = self.run.envs[failure.env]
            env = self.checkers[failure.env] = made.type(made.config)
            env.draw_frames = False
        return reaches_goal(env, failure.task, failure.steps[:step], actions, payloads)

    def row(self, failure: _Failure) -> Bound:
        """Return the row of a failure."""
        search = failure.search
        actions, payloads = failure.plan or (None, None)
        return Bound(
            episode_id=failure.episode_id,
            env=failure.env,
            num_steps=len(failure.steps),
            proven=search.proven,
            actions=actions,
            payloads=None if payloads is None else [payload or "" for payload in payloads],
            tried={str(step): count for step, count in sorted(search.failures.items())},
            retries=search.played,
            begun=failure.begun,
            is_over=search.next_step() is None,
            chance_step=search.proven + 1 if search.chance_after is not None else None,
            chance_at_most=search.chance_after,
            policy=self.policy.name,
            policy_config=canonical_json(self.policy.config_for(failure.env)),
        )


def _failures_of(store: Store, shard: Shard, settings: ProbeSettings, earlier: Mapping[str, Bound]) -> list[_Failure]:
    failures: list[_Failure] = []
    budget = settings.budget or 3 * settings.retries
    steps = steps_by_episode(store.read(STEPS, shard).to_pylist())
    labels = {row["episode_id"]: row for row in store.read(LABELS, shard).to_pylist()}
    for row in store.read(EPISODES, shard).to_pylist():
        certificate = (labels.get(row["episode_id"]) or {}).get("certificate")
        chosen = settings.certified or row["episode_id"] in earlier
        if not row["failed"] or (certificate and certificate["kind"] == "exact" and not chosen):
            continue
        mine = steps[row["episode_id"]]
        task = Task(**{name: row[name] for name in _TASK_FIELDS})
        failure = _Failure(
            task, row["sample_idx"], mine, row["env"], Bisection(len(mine) - 1, settings.retries, budget)
        )
        if (old := earlier.get(row["episode_id"])) is not None:
            tried = {int(step): count for step, count in old.tried.items()}
            failure.search.proven, failure.search.failures, failure.search.played = old.proven, tried, old.retries
            failure.begun = old.begun
            if old.actions is not None and old.payloads is not None:
                failure.plan = old.actions, [payload or None for payload in old.payloads]
        failures.append(failure)
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
