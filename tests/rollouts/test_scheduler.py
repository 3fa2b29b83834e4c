"""The scheduler: many batches in one loop, slow environments, few instances, and a run that has to stop."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pivot.core.errors import ServerGoneError, StoreError
from pivot.environments.base import Task
from pivot.environments.turns import Reply, Turn
from pivot.rollouts.base import Batch, Policy, Status, TaskRollouts
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.scheduler import run_batches
from pivot.tests.corridor import CorridorConfig, CorridorEnv, CorridorPrompt
from pivot.tests.flow_runs import PATIENCE


class Walker(Policy):
    """Walks right; calls ``on_turn`` with each turn first, which may wait or raise."""

    name = "walker"

    def __init__(self, on_turn: Callable[[Turn], Any] = lambda turn: None, limit: int = 64) -> None:
        self.on_turn = on_turn
        self.episodes_in_flight = limit
        self.closed = False

    @property
    def config(self) -> dict[str, Any]:
        return {}

    async def reply(self, turn: Turn) -> Reply:
        waiting = self.on_turn(turn)
        if waiting is not None:
            await waiting
        return Reply("<think>on</think><action>right</action>")

    async def aclose(self) -> None:
        self.closed = True


class SlowEnv(CorridorEnv):
    """An environment that waits in every step until the test continues it."""

    blocks = True
    waits: ClassVar[list[Callable[[], Any]]] = []
    users: ClassVar[dict[int, int]] = {}
    """Running calls, by instance."""
    most: ClassVar[int] = 0
    """Instances that were in use at a time."""
    closed: ClassVar[list[int]] = []

    def step(self, action: int) -> Any:
        SlowEnv.users[id(self)] = SlowEnv.users.get(id(self), 0) + 1
        assert SlowEnv.users[id(self)] == 1, "two threads use one environment"
        SlowEnv.most = max(SlowEnv.most, sum(SlowEnv.users.values()))
        try:
            for wait in SlowEnv.waits:
                wait()
            return super().step(action)
        finally:
            SlowEnv.users[id(self)] -= 1

    def close(self) -> None:
        assert not SlowEnv.users.get(id(self)), "closed while a thread uses it"
        SlowEnv.closed.append(id(self))


class FewConfig(CorridorConfig):
    """Config that allows one instance at a time."""

    @property
    def most_instances(self) -> int | None:
        return 1


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"waits": [], "users": {}, "most": 0, "closed": []}.items():
        monkeypatch.setattr(SlowEnv, name, value)


def batch(
    env_type: type[CorridorEnv] = CorridorEnv, count: int = 2, config: CorridorConfig | None = None, **fields: Any
) -> Batch:
    config = config or CorridorConfig()
    tasks = plan_tasks(env_type, config, 0, count)
    return Batch(env_type, config, tasks, **{"rollouts": 3, "prompt": CorridorPrompt()} | fields)


def run(batches: Any, policy: Policy, **options: Any) -> dict[str, list[TaskRollouts]]:
    """Run batches; return their results, by ``work``."""
    received: dict[str, list[TaskRollouts]] = {}

    def receive(done: Batch, records: list[TaskRollouts]) -> None:
        assert done.work not in received
        received[done.work] = records

    try:
        asyncio.run(run_batches(batches, policy, receive, **options))
    except BaseException as error:
        error.received = received  # pyright: ignore[reportAttributeAccessIssue]
        raise
    return received


def actions(records: list[TaskRollouts]) -> list[list[str]]:
    return [episode.actions for task in records for episode in task.episodes]


def test_many_batches_give_what_each_gives_alone() -> None:
    names = ("slow", "few", "plain", "again")
    kinds = (SlowEnv, SlowEnv, CorridorEnv, CorridorEnv)
    configs = (CorridorConfig(), FewConfig(length=7, horizon=3), CorridorConfig(), CorridorConfig(horizon=4))
    batches = [
        batch(kind, count=3, config=config, work=name) for name, kind, config in zip(names, kinds, configs, strict=True)
    ]

    def pause(turn: Turn) -> Any:
        return asyncio.sleep(turn.seed % 3 / 1000)

    policy, over = Walker(pause), []
    together = run(iter(batches), policy, on_episode=lambda: over.append(1))
    assert policy.closed
    assert len(over) == 4 * 9
    for each in batches:
        alone = roll_out_tasks(
            each.env_type, each.config, each.tasks, Walker(), each.rollouts, prompt=each.prompt, concurrency=1
        )
        results = together[each.work]
        assert [task.episodes for task in results] == [task.episodes for task in alone]
        assert [(list(task.frames), list(task.prompts)) for task in results] == [
            (list(task.frames), list(task.prompts)) for task in alone
        ]


def test_an_environment_that_waits_delays_no_other() -> None:
    """The slow step ends only when every turn of the others has been answered."""
    others, answered = threading.Event(), []
    fast = batch(count=4, work="fast")
    expected = sum(map(len, actions(run([fast], Walker())["fast"])))

    def on_turn(turn: Turn) -> None:
        if not turn.env.blocks:
            answered.append(turn)
        if len(answered) == expected:
            others.set()

    waited: list[bool] = []
    SlowEnv.waits.append(lambda: waited.append(others.wait(PATIENCE)))
    received = run([batch(SlowEnv, work="slow"), fast], Walker(on_turn))
    assert waited
    assert all(waited)
    assert {name: len(actions(records)) for name, records in received.items()} == {"slow": 6, "fast": 12}


def test_slow_environments_run_concurrently() -> None:
    barrier = threading.Barrier(6)
    SlowEnv.waits.append(lambda: barrier.wait(PATIENCE))  # every step ends when six steps run
    task = Task("t", 0, "A....G", "reach G")
    (records,) = run([Batch(SlowEnv, CorridorConfig(), [task], 6, prompt=CorridorPrompt())], Walker()).values()
    assert SlowEnv.most == 6
    assert {episode.status for episode in records[0].episodes} == {Status.COMPLETE}


def test_other_work_goes_first_while_instances_are_busy() -> None:
    """No turn ends before both kinds have begun: slots for episodes that cannot begin would never become free."""
    kinds: set[bool] = set()
    both = asyncio.Event()
    few = batch(SlowEnv, config=FewConfig(), work="few")

    def on_turn(turn: Turn) -> Any:
        kinds.add(turn.env.blocks)
        if len(kinds) == 2:
            both.set()
        return asyncio.wait_for(both.wait(), PATIENCE)

    SlowEnv.made = 0
    received = run([few, batch(work="plain")], Walker(on_turn, limit=4))
    assert {name: len(actions(records)) for name, records in received.items()} == {"few": 6, "plain": 6}
    assert SlowEnv.most == 1
    assert len(SlowEnv.closed) == 1


def test_the_number_in_flight_follows_the_policy_while_it_runs() -> None:
    policy = Walker(limit=1)
    counts: list[tuple[int, int]] = []
    playing: set[str] = set()

    def on_turn(turn: Turn) -> Any:
        playing.add(turn.episode_id)
        counts.append((len(playing), policy.episodes_in_flight))
        return asyncio.sleep(0.001)

    def over() -> None:
        playing.clear()  # rollouts in flight send their next request at once
        policy.episodes_in_flight = 5

    policy.on_turn = on_turn
    run([batch(count=6, work="b")], policy, on_episode=over)
    assert {number for number, limit in counts if limit == 1} == {1}
    assert max(number for number, _ in counts) == 5


@pytest.mark.parametrize("end", [ServerGoneError, asyncio.CancelledError])
def test_a_server_that_is_gone_and_a_cancelled_run_leave_what_was_finished(end: type[BaseException]) -> None:
    begun: list[str] = []

    def on_turn(turn: Turn) -> Any:
        if turn.t == 0:
            begun.append(turn.episode_id)
        if len(begun) > 7 and end is ServerGoneError:
            raise ServerGoneError("nobody answers")
        if len(begun) > 7:  # as Ctrl-C does it
            next(task for task in asyncio.all_tasks() if "run_batches" in repr(task.get_coro())).cancel()
        return asyncio.sleep(0)

    batches = [batch(count=1, work="first"), batch(count=2, work="second"), batch(count=3, work="third")]
    policy = Walker(on_turn, limit=1)
    with pytest.raises(end) as caught:
        run(batches, policy)
    assert policy.closed
    received = caught.value.received  # pyright: ignore[reportAttributeAccessIssue]
    assert list(received) == ["first", "second"], "a batch without a finished episode is not worth a file"
    pending = [episode for task in received["second"] for episode in task.episodes if episode.status is Status.ERROR]
    assert [len(task.episodes) for task in received["second"]] == [3, 3]
    assert len(pending) == 2
    reason = "nobody answers" if end is ServerGoneError else "the run was stopped"
    assert {episode.error for episode in pending} == {f"ServerGoneError: {reason}"}


def test_a_run_that_stops_waits_for_its_threads() -> None:
    """An environment is closed only when the thread that uses it has left it; :class:`SlowEnv` checks."""
    stepping = threading.Event()

    def wait() -> None:
        stepping.set()
        threading.Event().wait(0.2)

    async def stop() -> None:
        while not stepping.is_set():
            await asyncio.sleep(0.001)
        raise ServerGoneError("the end")

    SlowEnv.waits.append(wait)
    with pytest.raises(ServerGoneError, match="the end"):
        run([batch(SlowEnv, work="slow"), batch(work="fast")], Walker(lambda turn: None if turn.env.blocks else stop()))
    assert SlowEnv.closed
    assert not any(SlowEnv.users.values())


def test_an_error_of_the_receiver_ends_the_run() -> None:
    def receive(done: Batch, records: list[TaskRollouts]) -> None:
        raise StoreError("the disk is full")

    policy = Walker(lambda turn: asyncio.sleep(0.001), limit=1)
    with pytest.raises(StoreError, match="the disk is full"):
        asyncio.run(run_batches([batch(count=1), batch(count=2)], policy, receive))
    assert policy.closed


def test_an_environment_that_breaks_at_its_end_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(CorridorEnv):
        """An environment that cannot be closed."""

        def close(self) -> None:
            raise OSError("no such process")

    (records,) = run([batch(Stuck)], Walker()).values()
    assert {episode.status for task in records for episode in task.episodes} == {Status.COMPLETE}
    assert "no such process" in caplog.text
