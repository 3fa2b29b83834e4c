"""Labelling end to end: real failures in, labels out; broken environments, replayers, no verdict, repeatability."""

import json
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import pytest
from pivot.core import plugins
from pivot.core.errors import ConfigError, StoreError
from pivot.core.identity import canonical_json
from pivot.core.plugins import Settings
from pivot.core.records import to_row
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.environments.sokoban.environment import SokobanEnv
from pivot.labeling.analyzer import analyzer_prompt
from pivot.labeling.base import FailedEpisode, Filter, Guidance, GuidanceRequest, GuidanceWriter, Label
from pivot.labeling.domains.sokoban import SokobanDeadlockFilter, push_at
from pivot.labeling.filters import ReplayFilter
from pivot.labeling.label import guidance_request, label_episodes
from pivot.labeling.replay import MOST_REPLAYERS, Replays
from pivot.labeling.target import Target, parse_target
from pivot.labeling.writers.template import TemplateWriter
from pivot.solvers.base import Case, Certificate, Solver, Verdict
from pivot.solvers.frozenlake.solver import FrozenLakeSolver
from pivot.solvers.sokoban.solver import SokobanSolver
from pivot.tests.flow_runs import PATIENCE
from pivot.tests.labeling.episodes import random_failures, record
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.labeling.reasons import count_reject_reasons

FILTERS: list[Filter] = [plugins.load("filters", name)() for name in plugins.names("filters")]
BATCHES: list[tuple[str, dict[str, Any]]] = [
    ("sokoban", {}),
    ("sokoban", {"horizon": 3, "cell": 16}),
    ("sokoban", {"rows": 7, "cols": 7, "boxes": 2, "max_solution": 12, "cell": 16}),
    ("frozenlake", {}),
    ("frozenlake", {"size": 3, "horizon": 5, "cell": 32}),
    ("frozenlake", {"size": 6, "frozen_probability": 0.9, "cell": 16}),
]


def solver_of(env: str) -> Solver:
    return plugins.load("solvers", env)()


def label(episodes: Sequence[FailedEpisode], **changes: Any) -> list[Label]:
    env = episodes[0].env
    arguments: dict[str, Any] = {"solver": solver_of(env), "teacher": TemplateWriter(), "filters": FILTERS}
    return label_episodes(episodes, label_version="1", **(arguments | changes))


@pytest.fixture(scope="module")
def batches() -> list[list[FailedEpisode]]:
    return [random_failures(env, 120, seed=11, **settings) for env, settings in BATCHES]


# Labels


def test_labels_carry_the_verdict_and_say_who_wrote_them(batches: list[list[FailedEpisode]]) -> None:
    for episodes in batches:
        solver = solver_of(episodes[0].env)
        verdicts = solver.certify([Case(e.initial_state, e.actions, e.horizon) for e in episodes])
        profile = plugins.load("environments", episodes[0].env).profile
        for episode, verdict, made in zip(episodes, verdicts, label(episodes), strict=True):
            assert isinstance(verdict, Verdict)
            for column in fields(Verdict):
                assert getattr(made, column.name) == getattr(verdict, column.name)
            assert made.episode_id == episode.episode_id
            assert parse_target(made.target or "") == Target(
                verdict.pivot_step, verdict.failure_mode, made.failure_reason or ""
            )
            assert (made.solver, made.solver_version) == (solver.name, solver.version)
            assert made.solver_config == canonical_json(solver.config) and made.teacher == "template"
            assert json.loads(made.teacher_config or "") == {"is_stand_in": True, "version": "9"}
            assert made.prompt == analyzer_prompt(profile, episode)
            assert made.prompt_hash == made.prompt.prompt_hash
            assert list(made.image_hashes) == list(episode.frame_ids[:-1])
            assert made.accepted and made.proved is None  # no prover was given
            assert not made.reject_reasons


def test_labelling_twice_gives_equal_labels_in_any_batches(batches: list[list[FailedEpisode]]) -> None:
    for episodes in batches:
        whole = label(episodes)
        assert label(episodes) == whole
        assert [one for start in range(0, len(episodes), 7) for one in label(episodes[start : start + 7])] == whole
        assert label(episodes[::-1]) == whole[::-1]


# Without a verdict


def test_records_without_a_verdict_are_kept_with_the_reason() -> None:
    episodes = random_failures("sokoban", 20, seed=2)
    broken = [replace(episode, initial_state="no level") for episode in episodes[:3]]
    won = "######\n#@$. #\n#    #\n######"
    succeeded = replace(episodes[3], initial_state=won, actions=["right"] * episodes[3].num_steps)
    labels = label([*episodes[4:], *broken, succeeded])
    unsolved = labels[-4:]
    assert count_reject_reasons(labels) == {"bad_episode": 3, "not_a_failure": 1}
    for made in unsolved:
        assert not made.accepted and len(made.reject_reasons) == 1 and made.reject_reasons[0].detail
        for name in ("pivot_step", "failure_mode", "certificate", "witness", "target", "failure_reason", "fallback"):
            assert getattr(made, name) is None
        assert to_row(made)["certificate"] is None and made.prompt_hash == made.prompt.prompt_hash
    assert all(made.accepted for made in labels[:-4])


@pytest.mark.parametrize("column", ["payloads", "rewards", "infos", "action_valid", "frame_ids", "actions"])
def test_rows_that_do_not_belong_together_are_refused(column: str) -> None:
    (episode,) = random_failures("frozenlake", 1)
    torn = replace(episode, episode_id="torn", **{column: getattr(episode, column)[:-1]})
    with pytest.raises(StoreError, match="torn"):
        label([episode, torn])


def test_an_episode_without_steps_is_refused() -> None:
    (episode,) = random_failures("frozenlake", 1)
    empty: dict[str, Any] = {name: [] for name in ("actions", "payloads", "rewards", "infos", "action_valid")}
    with pytest.raises(StoreError, match="0 actions"):
        label([replace(episode, **empty, frame_ids=episode.frame_ids[:1])])


# Teachers


@pytest.mark.parametrize(
    ("env", "state", "settings"),
    [
        ("sokoban", "######\n#$@ .#\n#    #\n######", {}),  # lost from the start
        ("sokoban", "#######\n#@ $ .#\n#     #\n#######", {"horizon": 2}),
        ("frozenlake", "SFHF\nFHFG", {}),  # cut off
        ("frozenlake", "SHFF\nFFFG", {"horizon": 3}),
    ],
)
@pytest.mark.parametrize("action", ["down", "up", "invalid"])
def test_template_speaks_of_hopeless_starts_without_promising_anything(
    env: str, state: str, settings: dict[str, Any], action: str
) -> None:
    episode = record(env, state, [action] * 9, **settings)
    assert episode is not None
    (made,) = label([episode])
    assert made.infeasible_at_start and made.accepted
    assert "At step 0, " in (made.failure_reason or "") and "instead" not in (made.failure_reason or "")
    assert Checker(episode, 0, made.failure_mode or "").false_statements(made.failure_reason or "") == []


def test_template_speaks_of_a_log_that_stops_early() -> None:
    """An imported, truncated log whose last action was not fatal: the pivot is a convention, and the facts say so."""
    (episode,) = random_failures("sokoban", 1)
    verdict = Verdict(
        2, "timeout", Certificate("exact", "moves", 7, 6, 3, 2, True), (), True, False, ("up", "left", "left"), ("up",)
    )
    request = guidance_request(plugins.load("environments", "sokoban").profile, episode, verdict)
    assert request.offer.facts[0].kind == "still_solvable"
    assert [each.kind for each in request.offer.actions] == ["keep"]


def test_a_teacher_is_asked_once_and_only_about_verdicts() -> None:
    class Counting(GuidanceWriter):
        config_type = Settings
        name = "counting"

        def __init__(self) -> None:
            self.asked: list[int] = []

        @property
        def config(self) -> dict[str, Any]:
            return {"model": "m", "revision": "r", "sampling": {"temperature": 0.2}}

        def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
            self.asked.append(len(requests))
            return [Guidance(f"half a pair \ud800 at step {request.verdict.pivot_step}") for request in requests]

    teacher = Counting()
    episodes = random_failures("sokoban", 6, seed=4)
    labels = label([replace(episodes[0], initial_state="broken"), *episodes[1:]], teacher=teacher)
    assert teacher.asked == [5]
    assert json.loads(labels[1].teacher_config or "") == {**teacher.config, "is_stand_in": False}
    for made in labels[1:]:
        assert (made.guidance_prose or "").startswith("half a pair ? at step")
        assert (made.failure_reason, made.guidance_source) == ("", None)
        (made.target or "").encode()


def breaks_at(method: str, calls: list[int], error: Callable[[], Exception]) -> Any:
    """Replace a method of the environment by one that raises in the numbered calls."""
    original = getattr(FrozenLakeEnv, method)
    count = iter(range(1_000_000))

    def broken(self: FrozenLakeEnv, *arguments: Any, **named: Any) -> Any:
        if next(count) in calls:
            self._turn = 10**6  # the state of a broken simulator is unusable
            raise error()
        return original(self, *arguments, **named)

    return broken


@pytest.mark.parametrize("method", ["reset", "step", "encode_action", "frame_key"])
def test_a_broken_environment_rejects_one_label(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 5, seed=3, horizon=10)
    monkeypatch.setattr(FrozenLakeEnv, method, breaks_at(method, [3], lambda: RuntimeError("the simulator is gone")))
    labels = label_episodes(episodes, FrozenLakeSolver(), TemplateWriter(), [ReplayFilter()], "1")
    rejected = [label for label in labels if not label.accepted]
    assert len(rejected) == 1
    assert count_reject_reasons(labels) == {"replay": 1}
    detail = str(rejected[0].reject_reasons[0])
    assert detail == "broken: the environment raised RuntimeError: the simulator is gone"
    # Without the fault labels succeed: nothing of the broken environment is kept.
    monkeypatch.undo()
    again = label_episodes(episodes, FrozenLakeSolver(), TemplateWriter(), [ReplayFilter()], "1")
    assert all(label.accepted for label in again)


def test_rules_that_replay_for_a_fact_leave_it_to_the_replay_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("sokoban", 30, seed=4, horizon=10)
    always = list(range(1000))
    monkeypatch.setattr(SokobanEnv, "step", breaks_at("step", always, lambda: OSError("pipe closed")))
    rules = [ReplayFilter(), SokobanDeadlockFilter()]
    labels = label_episodes(episodes, SokobanSolver(), TemplateWriter(), rules, "1")
    assert "deadlock" in {label.failure_mode for label in labels}
    assert count_reject_reasons(labels) == {"replay": 30}


def test_settings_that_can_never_work_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 1, seed=5, horizon=10)
    for method in ("reset", "step"):
        with monkeypatch.context() as patch:
            patch.setattr(FrozenLakeEnv, method, breaks_at(method, [0], lambda: ConfigError("no simulator installed")))
            with pytest.raises(ConfigError, match="no simulator"):
                label_episodes(episodes, FrozenLakeSolver(), None, [ReplayFilter()], "1")


def test_labels_made_concurrently_equal_those_made_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task runner may start every shard at once in its own thread."""
    step = FrozenLakeEnv.step

    def unhurried(self: FrozenLakeEnv, action: Any) -> Any:
        time.sleep(0.0005)  # another thread's turn
        return step(self, action)

    monkeypatch.setattr(FrozenLakeEnv, "step", unhurried)
    shards = [random_failures("frozenlake", 6, seed=seed, horizon=6) for seed in range(4)]
    together = threading.Barrier(len(shards))

    def label(shard: Any) -> Any:
        together.wait(PATIENCE)
        return label_episodes(shard, FrozenLakeSolver(), None, [ReplayFilter()], "1")

    with ThreadPoolExecutor(len(shards)) as threads:
        labels = list(threads.map(label, shards))
    rejected = [each.reject_reasons for made in labels for each in made if not each.accepted]
    assert rejected == []


def test_environments_are_closed_with_the_call_that_owns_them(monkeypatch: pytest.MonkeyPatch) -> None:
    episodes = random_failures("frozenlake", 5)
    made, closed = [], []
    monkeypatch.setattr(FrozenLakeEnv, "close", lambda self: closed.append(id(self)))
    original = FrozenLakeEnv.from_settings.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(FrozenLakeEnv, "from_settings", classmethod(lambda *call: made.append(1) or original(*call)))
    label_episodes(episodes, FrozenLakeSolver(), None, [ReplayFilter()], "1")
    assert (len(made), len(closed)) == (1, 1), "one environment serves all episodes of one configuration"
    with Replays() as replays:
        first = replays.of(episodes[0])
        assert replays.of(episodes[1]) is first
        for horizon in range(20, 20 + MOST_REPLAYERS):
            replays.of(replace(episodes[0], env_config={**episodes[0].env_config, "horizon": horizon}))
        assert len(closed) == 2, "the one that was not asked for the longest is given up"
        assert replays.of(episodes[0]) is not first
    assert len(closed) == len(made)


@pytest.mark.parametrize(("level", "in_corner"), [("#####\n#@$ #\n##.##\n#####", True), ("#####\n#@$.#\n#####", False)])
def test_a_box_on_a_target_in_a_corner_is_where_it_belongs(level: str, in_corner: bool) -> None:
    push = push_at(level, ("right",))
    assert push is not None and push.in_corner == in_corner
