"""The published navigation tasks: start distances and the printed log by dead reckoning.

The files are not part of the project: the environment variable PIVOT_TASK_FILES names the folder that holds them.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from pivot.environments.navigation.files import read_task_files
from pivot.environments.navigation.state import parse_state
from pivot.solvers.base import Verdict
from pivot.solvers.navigation.room import read_state
from pivot.solvers.navigation.solver import NavigationSolver
from pivot.tests.navigation_episodes import printed_episode

FOLDER = os.environ.get("PIVOT_TASK_FILES")
pytestmark = pytest.mark.skipif(not FOLDER, reason="PIVOT_TASK_FILES does not name the folder of the published tasks")


def published(split: str) -> list[dict[str, Any]]:
    return json.loads((Path(FOLDER or "") / f"{split}.json").read_text(encoding="utf-8"))["tasks"]


def state_of(task: dict[str, Any]) -> str:
    """A published task as a simulator's state, put together by hand."""
    pose = task["agentPose"]
    return json.dumps(
        {
            "agent": {"position": pose["position"], "rotation": pose["rotation"], "horizon": pose["horizon"]},
            "backend": "thor",
            "scene": task["scene"],
            "target": {
                "id": task["targetObjectIds"],
                "type": task["targetObjectType"],
                "position": task["target_position"],
            },
        }
    )


def test_every_start_distance() -> None:
    """The object id names the target's place to the centimetre, a source of its own for the distance."""
    tasks = published("base")
    assert len(tasks) == 60
    for task in tasks:
        here = task["agentPose"]["position"]
        _, x, _, z = task["targetObjectIds"].split("|")[:4]
        by_id = math.hypot(here["x"] - float(x), here["z"] - float(z))
        start = read_state(state_of(task), 1.5).start_distance
        assert start == pytest.approx(by_id, abs=0.01)
        assert 1.5 < start < 3.001  # none is solved at its start, all within three translations as the crow flies
        assert NavigationSolver().needed(start) == 3


@pytest.mark.parametrize(("threshold", "pivot"), [(1.5, 22), (1.0, 21), (0, 19)])
def test_the_printed_log_from_its_published_start(threshold: float, pivot: int) -> None:
    answer = NavigationSolver(threshold=threshold).certify([printed_episode(state_of(published("base")[0]))])[0]
    assert isinstance(answer, Verdict)
    assert answer.pivot_step == pivot


def test_the_files_are_read_as_tasks_of_the_simulator() -> None:
    names = tuple(str(Path(FOLDER or "") / f"{split}.json") for split in ("base", "common_sense"))
    actual = read_task_files(names)
    assert [split for split, *_ in actual] == ["base", "common_sense"] * 60
    for (_, seed, state, words), (_, other_seed, other_state, other_words), task, other in zip(
        actual[::2], actual[1::2], published("base"), published("common_sense"), strict=True
    ):
        assert (seed, state) == (other_seed, other_state)
        assert (words, other_words) == (task["instruction"], other["instruction"])
        assert json.loads(state) == json.loads(state_of(task))
        assert read_state(state, 1.5).start_distance == parse_state(state).distance()
    assert len({seed for _, seed, *_ in actual}) == 60
