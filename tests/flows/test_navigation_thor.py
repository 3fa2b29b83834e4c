"""AI2-THOR through every stage, on a stand-in for its controller: task files, rollout with faults, label, verify."""

import json
import random
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("ai2thor", reason="ai2thor is not installed; make dev installs it")

import pivot
from pivot.core.errors import ConfigError, GenerationError
from pivot.datasets.store.config import make_config
from pivot.datasets.store.store import Store, stored_failures
from pivot.environments import backends
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.environments.navigation.player import NavigationPlayer
from pivot.environments.navigation.thor.world import ThorWorld
from pivot.environments.turns import Reply, Turn
from pivot.labeling import replay
from pivot.rollouts.plan import plan_tasks
from pivot.tests.cli.command_line import run_config
from pivot.tests.environments.navigation import thor_stand_in as stand_in
from pivot.tests.environments.navigation.thor_stand_in import StandInUnity
from pivot.tests.navigation_episodes import ACTIONS
from pivot.tests.stores import problems


def published(split: str, count: int) -> dict[str, Any]:
    """Tasks in the published format, made up here: the target lies behind a wall, so that every episode fails."""
    return {
        "tasks": [
            {
                "targetObjectType": "Bread",
                "targetObjectIds": f"Bread|{number}",
                "target_position": {"x": 3.9, "y": 0.98, "z": -1.5 - number / 10},
                "agentPose": {"position": {"x": 0.5, "y": 0.9, "z": -0.5}, "rotation": 90.0, "horizon": 0.0},
                "scene": f"FloorPlan{11 + number % 2}",
                "object_to_hide": ["Bread|7"],
                "instruction": f"{split}: go to the bread number {number}",
            }
            for number in range(count)
        ]
    }


def write(folder: Path, split: str, content: Any) -> str:
    path = folder / f"{split}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    return [write(tmp_path, split, published(split, 3)) for split in ("base", "common_sense")]


# Task files


def test_splits_share_levels_and_task_ids(files: list[str]) -> None:
    config = NavigationConfig(backend="thor", task_files=tuple(files))
    tasks = NavigationEnv.fixed_tasks(config)
    assert tasks is not None
    assert [task.eval_set for task in tasks] == ["base", "common_sense"] * 3
    for base, common in zip(tasks[::2], tasks[1::2], strict=True):
        assert (base.task_id, base.seed, base.initial_state) == (common.task_id, common.seed, common.initial_state)
        assert base.instruction.removeprefix("base") == common.instruction.removeprefix("common_sense")
        assert base.seed is not None and NavigationEnv.make_level(config, base.seed) == (base, common)
        assert NavigationEnv.canonical_state(base.initial_state) == base.initial_state
    assert len({task.task_id for task in tasks}) == 3
    assert plan_tasks(NavigationEnv, config, 0, 4) == list(tasks[:4])
    assert plan_tasks(NavigationEnv, config, 77, 6) == list(tasks)
    with pytest.raises(GenerationError, match="7 tasks asked for, its settings list 6"):
        plan_tasks(NavigationEnv, config, 0, 7)
    short = write(Path(files[0]).parent, "short", published("short", 1))
    uneven = NavigationEnv.fixed_tasks(NavigationConfig(backend="thor", task_files=(files[0], short)))
    assert uneven is not None and [task.eval_set for task in uneven] == ["base", "short", "base", "base"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "no list 'tasks'"),
        ({"tasks": [3]}, "task 0 of"),
        ({"tasks": [{}]}, "task 0 of .*'agentPose'"),
    ],
)
def test_a_file_of_another_format_is_explained(tmp_path: Path, content: Any, words: str) -> None:
    name = write(tmp_path, "odd", content)
    with pytest.raises(ConfigError, match=words):
        make_config({"environments": {"navigation": thor_run([name])}})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda task: task.pop("scene"), "'scene'"),
        (lambda task: task.update(scene=""), "scene"),
        (lambda task: task["agentPose"]["position"].pop("z"), "'z'"),
        (lambda task: task["target_position"].update(x="here"), "could not convert"),
        (lambda task: task["target_position"].update(x=1e9), "target.position.x"),
        (lambda task: task["agentPose"].update(rotation=None), "rotation|NoneType"),
        (lambda task: task.update(instruction=" "), "instruction"),
        (lambda task: task.update(targetObjectIds=["Bread"]), "target.id"),
    ],
)
def test_a_task_that_lacks_something_is_named(tmp_path: Path, change: Callable[[Any], Any], words: str) -> None:
    content = published("base", 2)
    change(content["tasks"][1])
    with pytest.raises(ConfigError, match=rf"task 1 of .*base\.json.*({words})"):
        make_config({"environments": {"navigation": thor_run([write(tmp_path, "base", content)])}})


def test_settings_that_do_not_fit_are_refused(tmp_path: Path, files: list[str]) -> None:
    def resolved(**settings: Any) -> Any:
        return make_config({"environments": {"navigation": {"tasks": 1, "settings": settings}}})

    with pytest.raises(ConfigError, match="task_files need backend=thor"):
        resolved(task_files=files)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolved(backend="thor", task_files=[str(tmp_path / "none.json")])
    with pytest.raises(ConfigError, match="named 'base'"):
        (tmp_path / "more").mkdir()
        resolved(backend="thor", task_files=[files[0], write(tmp_path / "more", "base", published("base", 1))])
    config = resolved(backend="thor", task_files=files)
    settings = config.environments["navigation"].settings
    assert settings["thor_version"] and settings["task_digest"]
    assert make_config(config.model_dump(mode="json")) == config
    with pytest.raises(ConfigError, match=r"name one or more with --set navigation\.task_files="):
        NavigationEnv.make_level(NavigationConfig(backend="thor"), 1)
    changed = NavigationConfig(**settings | {"task_digest": "0" * 16})
    with pytest.raises(ConfigError, match="not those of this config"):
        NavigationEnv.fixed_tasks(changed)


def test_the_command_line_counts_the_tasks_of_the_files(files: list[str]) -> None:
    settings = f"navigation --set navigation.backend=thor --set navigation.task_files={shlex.quote(json.dumps(files))}"
    assert run_config(settings).environments["navigation"].tasks == 6
    assert run_config(f"{settings} --tasks 2").environments["navigation"].tasks == 2
    assert run_config("navigation").environments["navigation"].tasks == 120


# Through the pipeline


def thor_run(files: list[str], tasks: int = 6) -> dict[str, Any]:
    return {"tasks": tasks, "settings": {"backend": "thor", "task_files": files}}


def stumble(self: NavigationPlayer, turn: Turn) -> Reply:
    """Act at random: the scripted player knows embedded rooms only."""
    word = random.Random(turn.seed).choice((*ACTIONS, "fly"))
    return Reply(f"<think>on</think><action>{word}</action>")


@pytest.fixture
def unity(monkeypatch: pytest.MonkeyPatch) -> StandInUnity:
    made = StandInUnity()
    monkeypatch.setattr(ThorWorld, "has_started", False)
    monkeypatch.setattr("pivot.environments.navigation.environment.ThorWorld", lambda: ThorWorld(made))
    monkeypatch.setattr(NavigationPlayer, "check", lambda self, config: None)
    monkeypatch.setattr(NavigationPlayer, "reply", stumble)
    backends._check.cache_clear()
    return made


def build(files: list[str], root: Path) -> Any:
    return pivot.build({"environments": {"navigation": thor_run(files, 2)}, "rollouts": 2}, root)


def rows(root: Path, table: str) -> pl.DataFrame:
    return getattr(Store.open(root).lazy(), table).collect()


def test_a_store_from_the_simulator(unity: StandInUnity, files: list[str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert build(files, root).pending_episodes == 0
    # One start for the check, one for all episodes of the process, one for the replay of labels.
    assert len(unity.controllers) == 3
    episodes, labels = rows(root, "episodes"), rows(root, "labels")
    assert episodes["backend"].unique().to_list() == ["thor"]
    assert episodes["eval_set"].to_list() == ["base"] * 2 + ["common_sense"] * 2
    assert episodes["failed"].all()
    assert labels["accepted"].all(), labels["reject_reasons"].to_list()
    facts = labels["certificate"].struct
    assert facts.field("kind").unique().to_list() == ["lower_bound"]
    assert facts.field("reference_pivot").null_count() == len(labels)
    assert problems(root) == []
    assert "ray caster" not in (root / "dataset/README.md").read_text()


def test_faults_leave_no_trace_in_the_store(unity: StandInUnity, files: list[str], tmp_path: Path) -> None:
    build(files, tmp_path / "calm")
    unity.calls = 0
    unity.faults = {20: stand_in.hang, 50: stand_in.crash, 90: stand_in.with_frame(None), 170: stand_in.died}
    assert build(files, tmp_path / "rough").pending_episodes == 0
    assert unity.calls > 170
    for table in ("episodes", "steps", "frames", "labels"):
        assert rows(tmp_path / "calm", table).equals(rows(tmp_path / "rough", table)), table


def test_a_lost_episode_keeps_its_steps_and_is_pending(unity: StandInUnity, files: list[str], tmp_path: Path) -> None:
    root = tmp_path / "store"
    # Calls 1 to 3 check and load; call 13 is the first episode's eleventh action, which fails on every controller.
    unity.faults = dict.fromkeys(range(13, 60), stand_in.died)
    assert build(files, root).pending_episodes >= 1
    episodes = rows(root, "episodes")
    broken = episodes.filter(pl.col("status") == "error")
    assert broken["stop_reason"].unique().to_list() == ["env_error"]
    assert "given up after 2 restarts" in broken["error"][0]
    assert max(broken["num_steps"].to_list()) > 3
    assert rows(root, "labels").height == episodes["failed"].sum()
    unity.faults = {}
    assert build(files, root).pending_episodes == 0
    assert problems(root) == []


def test_an_unfit_simulator_stops_a_run_before_it_begins(unity: StandInUnity, files: list[str], tmp_path: Path) -> None:
    unity.starts = [stand_in.no_build] * 9
    with pytest.raises(ConfigError, match="no build exists"):
        build(files, tmp_path / "store")
    assert not list((tmp_path / "store").glob("episodes/**/*.parquet"))


def test_the_exact_rule_is_refused_before_anything_starts(files: list[str]) -> None:
    run = {"environments": {"navigation": thor_run(files)}, "solvers": {"navigation": {"pivot_rule": "exact"}}}
    with pytest.raises(ConfigError, match=r"backend=thor has none; choose navigation\.pivot_rule=budget"):
        make_config(run)


def test_a_label_of_another_walk_is_rejected(unity: StandInUnity, files: list[str], tmp_path: Path) -> None:
    """Re-execution may be off by millimetres, not by steps."""
    root = tmp_path / "store"
    build(files, root)
    episode = rows(root, "labels")["episode_id"][0]
    store = Store.open(root)
    failed = next(each for each in stored_failures(store, store.config.shards()[0]) if each.episode_id == episode)
    replays = replay.Replays()
    replays.of(failed).check(failed)
    wrong = pytest.raises(replay.DisagreementError, match="info: step 2 gives dist")
    for off, outcome in ((0.005, nullcontext()), (0.3, wrong)):
        infos = [dict(info) for info in failed.infos]
        infos[2]["dist"] += off
        changed = replace(failed, infos=infos)
        with outcome:
            replays.of(changed).check(changed)
    assert rows(root, "steps").height == 2 * 2 * 25
