"""Gymnasium environments by id: the contract, a whole store of MiniGrid, and what is refused."""

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pivot
import polars as pl
import pytest
from pivot.core.admission import allowing
from pivot.core.errors import ConfigError, GenerationError, LevelError
from pivot.environments.base import ParsedAction
from pivot.environments.gym import GymConfig, GymEnv
from pivot.rollouts.plan import plan_tasks
from pivot.solvers.base import Case, Certificate, Unsolved, Verdict
from pivot.solvers.closure.game import Level, first_level
from pivot.solvers.closure.prover import GymProver
from pivot.solvers.closure.solver import ClosureSolver
from pivot.testing import EnvironmentContract
from pivot.tests.environments import lanes
from pivot.tests.flow_runs import fingerprint
from pydantic import Field

from datasets import load_dataset

NAMES = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
DOORKEY = {"id": "MiniGrid-DoorKey-5x5-v0", "kwargs": {"tile_size": 8}, "horizon": 12, "first_search": 150}
CLIFF = {"id": "CliffWalking-v1", "horizon": 14, "success": "terminated"}
LAKE = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False}, "horizon": 14}
LEVEL = '{"actions":{"down":1,"left":0,"right":2,"up":3},"id":"FrozenLake-v1","kwargs":{"is_slippery":false},"seed":3}'


@pytest.fixture(autouse=True)
def _code_of_the_tests() -> Iterator[None]:
    with allowing([lanes.__name__, __name__, "no"]):
        yield


class SmallConfig(GymConfig):
    """A default environment that is quick to search and to draw."""

    kwargs: dict[str, Any] = DOORKEY["kwargs"]
    horizon: int = Field(default=DOORKEY["horizon"], gt=0)
    first_search: int = DOORKEY["first_search"]


class SmallEnv(GymEnv):
    config_type = SmallConfig


class TestGymContract(EnvironmentContract):
    env_type = SmallEnv
    seeds = tuple(range(3))
    actions = tuple((name, None) for name in NAMES)
    answers: ClassVar = {name: (name, None) for name in NAMES}
    garbage = ("", "go left", "left right", "0", "<b>left</b>", "l" * 65536, "left\x00")
    bad_states: ClassVar = {
        "": "expected the JSON of a level",
        "[]": "expected the JSON of a level",
        LEVEL.replace('"seed":3', '"seed":-1'): "seed",
        LEVEL.replace('"seed":3', '"seed":3,"taken":["jump"]'): "'jump'",
        LEVEL.replace("FrozenLake-v1", "os:path"): "without a module",
        LEVEL.replace('"seed"', '"sprout"'): "expected the JSON of a level",
    }
    equal_states = ((LEVEL, LEVEL.replace(",", ", ")), (LEVEL, LEVEL.replace('"seed":3', '"seed":3,"taken":[]')))
    bad_settings = (({"horizon": 0}, "horizon"), ({"id": "os:system"}, "without a module"), ({"key": "pixels"}, "key"))
    info_keys = frozenset({"moved", "action_is_valid", "remaining_turns", "success"})
    reward_range = (0.0, 1.0)


def labels(root: Path) -> pl.DataFrame:
    return pivot.load_store(root).labels.collect()


@pytest.mark.parametrize("settings", [DOORKEY, CLIFF])
def test_a_store_is_built_verified_and_loaded(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Catch a label of a whole store that the package's own game contradicts, and a dataset that cannot be loaded."""
    config = {"environments": {"gym": {"tasks": 1, "settings": settings}}, "rollouts": 2}
    pivot.build(config, tmp_path)
    rows = labels(tmp_path)
    assert rows.filter(pl.col("accepted")).height == rows.height > 0
    report = pivot.verify(tmp_path)
    assert not report.problems
    assert labels(tmp_path).height == rows.height
    (split, *_) = load_dataset(str(tmp_path / "dataset"), "gym").values()
    assert split.num_rows
    for row in rows.iter_rows(named=True):
        assert row["witness"] is None or len(row["witness"]) == row["certificate"]["before"]


def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path) -> None:
    """Catch a label that depends on the process that searched its level."""
    config = {"environments": {"gym": {"tasks": 2, "settings": LAKE}}, "rollouts": 2, "tasks_per_shard": 1}
    stores: list[dict[str, str]] = []
    for workers in (1, 2):
        pivot.build(config, tmp_path / str(workers), workers=workers)
        stores.append(fingerprint(tmp_path / str(workers)))
    assert stores[0] == stores[1]
    assert len([name for name in stores[0] if name.startswith("labels/")]) == 2


def test_levels_of_one_seed_are_played_with_their_own_pictures() -> None:
    config = GymConfig(**DOORKEY)
    env = GymEnv(config)
    task = GymEnv.make_task(config, 7)
    first, _ = env.reset(options={"state": task.initial_state})
    second, reward, *_ = env.step(env.encode_action("right"))
    assert reward == 0.0
    assert not np.array_equal(first, second)
    assert Level.read(env.state_text()).taken == ("right",)
    assert "use the key to open the door" in task.instruction
    assert "Leave the room." in GymEnv.make_task(GymConfig(**DOORKEY, mission="Leave the room."), 7).instruction
    assert GymEnv.describe_state(env.state_text()).endswith("seed 7, after right")
    with pytest.raises(LevelError, match="with other settings"):
        GymEnv(GymConfig(**DOORKEY, success="reward>0.5")).reset(options={"state": task.initial_state})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "NoSuch-v0"}, "cannot be made.*install its package"),
        ({"id": "MiniGrid-NoSuch-v0"}, "cannot be made"),
        ({"id": "Pendulum-v1"}, "found the action space Box"),
        ({"id": "FrozenLake-v1", "actions": {"jump": 9}}, "found 9 for 'jump'"),
        ({"id": "FrozenLake-v1", "actions": {"go up": 3, "Go_up": 0}}, "found go up, Go_up, expected names that"),
        ({"id": "FrozenLake-v1", "kwargs": {"nonsense": 1}}, "cannot be made"),
    ],
)
def test_settings_that_fit_no_environment_are_refused(settings: dict[str, Any], message: str) -> None:
    config = GymConfig(**settings)
    with pytest.raises(ConfigError, match=message):
        GymEnv(config)
    with pytest.raises(GenerationError, match=message):
        GymEnv.make_task(config, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"id": "FrozenLake-v1", "kwargs": {"is_slippery": True}}, "the environment is random"),
        ({"id": "MiniGrid-Dynamic-Obstacles-5x5-v0"}, "a step drew a random number from np_random"),
        ({"id": "MiniGrid-Empty-5x5-v0", "horizon": 112}, "depends on step_count: .* pays -0.008 in turn 112"),
        ({"id": "CliffWalking-v1"}, "no step succeeds; .* with gym.success, which is terminated if every end is"),
        *(
            (LAKE | {"failure_modes": modes}, f"expected {message}")
            for modes, message in (
                ({"hole": f"{__name__}:no_such"}, "a function that can be imported"),
                ({"hole": "no.such.module:fell"}, "a function that can be imported"),
                ({"timeout": f"{__name__}:fell"}, "a new lower-case word"),
                ({"Hole!": f"{__name__}:fell"}, "a new lower-case word"),
                ({"hole": "fell"}, "module:function"),
            )
        ),
    ],
)
def test_what_could_not_be_labelled_ends_before_a_run(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pivot.build({"environments": {"gym": {"tasks": 1, "settings": settings}}}, tmp_path)


def fell(env: Any, reward: float, info: Any) -> bool:
    """Whether the agent of a lake is in a hole."""
    return reward == 0.0 and env.unwrapped.desc.flat[env.unwrapped.s] == b"H" and "prob" in info


def broken(env: Any, reward: float, info: Any) -> bool:
    raise RuntimeError("no such thing")


OWN = LAKE | {"failure_modes": {"hole": f"{__name__}:fell"}}


def test_a_predicate_names_failures(tmp_path: Path) -> None:
    """Catch a fall without its own name, or one that verify cannot prove."""
    pivot.build({"environments": {"gym": {"tasks": 2, "settings": OWN}}, "rollouts": 6}, tmp_path)
    own = labels(tmp_path)
    modes = set(own["failure_mode"])
    assert {"hole"} <= modes <= {"hole", "timeout"}
    assert own.filter(pl.col("failure_mode") == "hole")["secondary_modes"].to_list()[0] == ["deadlock"]
    assert own["accepted"].all() and own["proved"].all()
    assert not pivot.verify(tmp_path, sources=True).problems
    (split, *_) = load_dataset(str(tmp_path / "dataset"), "gym").values()
    assert split.features["failure_mode_id"].names[10:] == ["hole", "out_of_budget"]


def test_a_false_name_of_a_failure_is_refuted(tmp_path: Path) -> None:
    task = GymEnv.make_task(GymConfig.model_validate(OWN), 0)
    case = Case(task.initial_state, ["right", "down"], 14)  # cell 5 is a hole
    (verdict,) = ClosureSolver().certify([case])
    assert isinstance(verdict, Verdict)
    assert (verdict.pivot_step, verdict.failure_mode, verdict.secondary_modes) == (1, "hole", ("deadlock",))
    prover = GymProver()
    assert prover.prove(case, verdict).holds
    plain = replace(verdict, failure_mode="deadlock", secondary_modes=())
    for forgery in (plain, replace(verdict, secondary_modes=("timeout",)), replace(verdict, secondary_modes=())):
        assert prover.prove(case, forgery).problems


def test_a_predicate_that_raises_gives_no_label() -> None:
    task = GymEnv.make_task(GymConfig(**LAKE, failure_modes={"hole": f"{__name__}:broken"}), 0)
    (answer,) = ClosureSolver().certify([Case(task.initial_state, ["right", "down"], 14)])
    assert isinstance(answer, Unsolved)
    assert "no such thing" in answer.detail


def test_pygame_looks_for_no_screen_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    GymConfig(id="Taxi-v4").make("rgb_array")
    assert os.environ.pop("SDL_VIDEODRIVER", "") == ("dummy" if sys.platform == "linux" else "")


def test_a_level_that_was_too_large_is_labelled_with_a_larger_limit() -> None:
    case = Case(GymEnv.make_task(GymConfig(**LAKE), 0).initial_state, ["right", "down"], 14)
    (cut,) = ClosureSolver(max_depth=1).certify([case])
    assert isinstance(cut, Unsolved)
    assert cut.reason == "solver_limit"
    assert isinstance(ClosureSolver().certify([case])[0], Verdict)


def lane(name: str, **settings: Any) -> GymConfig:
    return GymConfig(id=f"Lane{name}-v0", package=lanes.__name__, horizon=6, **settings)


def test_an_episode_ends_with_success_where_the_environment_goes_on() -> None:
    env = GymEnv(lane("GoesOn", actions={"Back": 0, "Stay": 1, "go On": 2}))
    assert env.parse_action("go on") == ParsedAction("go On")
    env.reset(seed=0)
    while not (ends := env.step(2)[2:])[2]["success"]:
        assert ends[:2] == (False, False)
    assert ends[:2] == (True, False) and ends[2]["remaining_turns"] > 0


def test_a_counter_in_a_closure_is_part_of_the_state() -> None:
    """The observation hides it, which is refused; all attributes show it, and then six steps are enough or none are."""
    with pytest.raises(ConfigError, match=r"the environment is random, has state .*; use gym.key=state, keep all"):
        GymEnv.check_ready(lane("Hidden", key="observation", first_search=200))
    graph = pivot.explore(lanes.Hidden, seed=0, max_depth=12)
    waits = graph.walk(["action_1"] * 3)
    assert graph.need(0) == 4
    assert [graph.least[state] > 8 for state in waits] == [False, False, False, True]


@pytest.mark.parametrize("name", ["Logging", "Locked"])
def test_the_declared_observation_is_the_key_of_search_and_proof(name: str, tmp_path: Path) -> None:
    """Attributes that grow or cannot be read are then ignored."""
    settings = lane(name, key="observation").model_dump()
    pivot.build({"environments": {"gym": {"tasks": 2, "settings": settings}}, "rollouts": 4}, tmp_path)
    rows = labels(tmp_path)
    assert rows.height > 0 and rows["accepted"].all() and rows["proved"].all()
    assert not pivot.verify(tmp_path, sources=True).problems


def test_a_proof_by_an_observation_that_hides_state_is_undecided() -> None:
    level, _ = first_level(lane("Hidden", key="observation", success="goal-reward").game, 3)
    case = Case(level.text(), ["action_1"] * 6 + ["action_2"] * 3, 9)
    certificate = Certificate("exact", "turns", 3, 2, 4, None, reachable_after=False)
    verdict = Verdict(6, "deadlock", certificate, fallback=False, infeasible_at_start=False, witness=None)
    assert "has state that its key does not show" in (GymProver().prove(case, verdict).undecided or "")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Logging", "two calls of reset .* differ in .*log.*; let reset set all attributes, .* gym.key=observation"),
        ("Remembering", r"every turn leads to a new state in the 20\d states .* gym.key=observ.* gym.first_search"),
        ("Locked", "found Locked.numbers of type builtins.generator, which cannot be read in full .*; set gym.key=obs"),
        ("Opaque", "observation: found Opaque, expected numbers.*; use gym.key=state, or wrap"),
        ("NoNumber", "reward: found nan, which is not a number, .*; repair the reward"),
        ("Exits", r"reset with seed 0 of Exits called sys.exit\(3\); expected a level for every seed"),
        ("NoPicture", "draws NoneType, expected an RGB picture .*; wrap the environment"),
        ("BrokenPicture", "render of BrokenPicture raised OSError: no display second line; expected an RGB picture"),
        ("Continuous", "found the action space Box.*, expected a discrete or binary one.*; wrap the environment"),
        ("ManyActions", "actions: found 65, expected at most 64; name those to use in gym.actions"),
    ],
)
def test_an_unfit_environment_is_refused_in_one_line_that_names_settings(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^gym.id='Lane{name}-v0'.*{message}") as refused:
        GymEnv.check_ready(lane(name, first_search=200, key="observation" if name == "Opaque" else "package"))
    assert "\n" not in str(refused.value)
    assert all(name not in str(refused.value) for name in ("key=,", "clock", "how="))


def test_the_python_interface_names_its_arguments() -> None:
    with pytest.raises(pivot.PivotError, match="; use key=state, keep all state in attributes"):
        pivot.explore(lanes.Hidden, key="observation")
    with pytest.raises(pivot.PivotError, match=r"which cannot be read in full.*; set key=observation if"):
        pivot.explore(lanes.Locked)


def test_a_failing_reset_names_level_and_seed_on_one_line() -> None:
    with pytest.raises(GenerationError) as refused:
        plan_tasks(GymEnv, lane("SomeSeeds"), 0, 12)
    assert re.fullmatch(
        r"level \d+ \(counted from 0\): gym.id='LaneSomeSeeds-v0': reset with seed \d+ of SomeSeeds raised "
        r"RuntimeError: no level of this seed second line; expected a level for every seed, .*",
        str(refused.value),
    )
