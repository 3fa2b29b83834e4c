"""Logs of EB-Navigation of EmbodiedBench: distances and actions, without the state of the simulator.

Read in EmbodiedBench/EmbodiedBench: ``embodiedbench/envs/eb_navigation/EBNavEnv.py`` (a file ``episode_N.json`` with
one JSON object per executed step, an empty line before the first step of each plan, ``episode_N_step_K_TIME_front.png``
after step K) and ``embodiedbench/evaluator/eb_navigation_evaluator.py`` (``results/episode_N_final_res.json``). The
target is reached within 1 m, and an episode has 20 steps: after them, and after an action that is not an index, the
environment does nothing and ends. A second evaluation appends to the same files. Neither scene nor pose is logged.

A movement is asked for as 0.25 m, but AI2-THOR then moves the agent to the nearest point of its grid (``gridSize`` 0.1;
allenai/ai2thor ``unity/Assets/Scripts/BaseFPSAgentController.cs``, ``snapAgentToGrid``), so that it is 0.2 or 0.3 m
long. A lower bound needs the longer one.

The distance is logged after every step. That before the first is taken to be the smallest that fits the first one
logged; this decides no pivot, because one step changes it by one step at most.

Logs of other programs in this form may have a field ``initial_state`` in the first step of an episode, the state text
of PIVOT's navigation; such an episode is replayed.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import ConfigError
from ..plugins import Settings
from .base import MOST_BYTES, Importer, Place, UnreadableError, explained, folder_of, line_places, read_line
from .distances import StartSettings, start_distance
from .episode import RecordedEpisode

_FILE = re.compile(r"episode_(\d+)\.json")
_PICTURE = re.compile(r"episode_(\d+)_step_(\d+)_.*_front(?:_bb)?\.png")
ACTIONS = ("moveahead", "moveback", "moveright", "moveleft", "rotateright", "rotateleft", "lookup", "lookdown")
"""PIVOT's names of the actions, by ``action_id``."""


class EmbodiedBenchSettings(StartSettings):
    """Dialect of the task; the defaults are those of EB-Navigation."""

    step: float = Field(default=0.3, gt=0)
    """Longest movement, metres."""
    success_distance: float = Field(default=1.0, ge=0)
    """Distance from the target that is success, metres."""
    horizon: int = Field(default=20, ge=1, le=1000)
    """Maximum number of steps of an episode."""


class _Step(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    distance: float = Field(ge=0)
    action_id: int | str | None = None
    env_step: int
    task_success: float = 0.0
    last_action_success: bool | None = None
    instruction: str | None = None
    reasoning: Any = None


class EmbodiedBenchImporter(Importer):
    """Reader of a folder of ``episode_N.json`` files, at any depth, or of one such file."""

    config_type: ClassVar[type[Settings]] = EmbodiedBenchSettings
    settings: EmbodiedBenchSettings

    def __init__(self, settings: Settings | None = None, **values: Any) -> None:
        """See the base class."""
        super().__init__(settings, **values)
        self._listed: tuple[str, dict[int, dict[int, list[str]]]] = "", {}

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the episodes: runs of lines whose ``env_step`` rises."""
        files = (
            [each for each in source.rglob("episode_*.json") if _FILE.fullmatch(each.name)]
            if source.is_dir()
            else [source]
        )
        if not files:
            raise ConfigError(f"{source} holds no episode_N.json; name the log folder of EB-Navigation")
        for file in sorted(files, key=_order):
            name = file.relative_to(source).as_posix() if source.is_dir() else file.name
            yield from _runs(source, file, name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one episode."""
        steps: list[_Step] = []
        try:
            steps.extend(
                _Step.model_validate_json(line) for line in read_line(source, place).splitlines() if line.strip()
            )
        except ValidationError as error:
            raise UnreadableError(f"step {len(steps) + 1}: {explained(error)}") from error
        return self._episode(source, place, steps)

    def _episode(self, source: Path, place: Place, steps: list[_Step]) -> RecordedEpisode:
        settings = self.settings
        played = [step for step in steps if step.env_step <= settings.horizon]
        if not played:
            raise UnreadableError("found no executed step")
        gap = next((t for t, step in enumerate(steps, 1) if step.env_step != t), None)
        if gap is not None:
            raise UnreadableError(f"found env_step {steps[gap - 1].env_step}, expected {gap}: a step is not logged")
        pictures = self._pictures(source, place)
        turns: list[dict[str, Any]] = []
        for index, step in enumerate(played):
            first = index == 0 or step.reasoning != played[index - 1].reasoning
            turns.append(
                {
                    "frame": pictures.get(step.env_step - 1),
                    "actions": _action(step),
                    "response": json.dumps(step.reasoning, ensure_ascii=False) if first and step.reasoning else None,
                    "info": {"dist": step.distance, "last_action_success": step.last_action_success},
                }
            )
        if (state := (steps[0].model_extra or {}).get("initial_state")) is not None:
            return self._with_state(place, played, turns, pictures, state)
        last = steps[-1]
        success = last.task_success > 0
        is_over = success or len(steps) > len(played) or len(played) >= settings.horizon or not _action(last)
        return RecordedEpisode.model_validate(
            {
                "env": "navigation",
                "env_config": {"horizon": settings.horizon},
                "id": place.label,
                "instruction": last.instruction,
                "turns": turns,
                "final_frame": pictures.get(played[-1].env_step),
                "distances": [self._start(played[0]), *(step.distance for step in played)],
                "starts": (settings.nearest_start, settings.farthest_start),
                "solver": {"step": settings.step, "threshold": settings.success_distance},
                "success": success if is_over else None,
                "terminated": success,
                "truncated": is_over and not success,
                "embodiedbench": {"task_success": last.task_success, "logged_steps": len(steps)},
            }
        )

    def _start(self, first: _Step) -> float:
        """Return the smallest distance that the first step can have begun at."""
        settings = self.settings
        return start_distance(first.distance, int(bool(_action(first))), settings.step, settings.nearest_start)

    def _with_state(
        self, place: Place, played: list[_Step], turns: list[dict[str, Any]], pictures: dict[int, str], state: Any
    ) -> RecordedEpisode:
        """Return an episode whose log has the state."""
        success = played[-1].task_success > 0
        return RecordedEpisode.model_validate(
            {
                "env": "navigation",
                "env_config": {"horizon": self.settings.horizon},
                "id": place.label,
                "initial_state": state,
                "instruction": played[-1].instruction,
                "turns": turns,
                "final_frame": pictures.get(played[-1].env_step),
                "success": success if success or len(played) >= self.settings.horizon else None,
            }
        )

    def _pictures(self, source: Path, place: Place) -> dict[int, str]:
        """Return the picture after each step by its number; none of a file with several runs, whose pictures mix."""
        path = PurePosixPath(place.path)
        number, folder = _FILE.fullmatch(path.name), path.parent.as_posix()
        if " run " in place.label or number is None:
            return {}
        if self._listed[0] != folder:
            episodes: dict[int, dict[int, list[str]]] = {}
            for name in sorted(each.name for each in (folder_of(source) / folder).iterdir()):
                if picture := _PICTURE.fullmatch(name):
                    steps = episodes.setdefault(int(picture[1]), {})
                    steps.setdefault(int(picture[2]), []).append((path.parent / name).as_posix())
            self._listed = folder, episodes
        mine = self._listed[1].get(int(number[1]), {})
        return {step: names[0] for step, names in mine.items() if len(names) == 1}


def _action(step: _Step) -> list[str]:
    is_index = isinstance(step.action_id, int) and 0 <= step.action_id < len(ACTIONS)
    return [ACTIONS[int(step.action_id or 0)]] if is_index else []


def _order(file: Path) -> tuple[str, int]:
    number = _FILE.fullmatch(file.name)
    return file.parent.as_posix(), int(number[1]) if number else 0


def _runs(source: Path, file: Path, name: str) -> Iterator[Place]:
    """Yield the runs of a file; lines that are not objects belong to the run before them, where they are named."""
    start, end, last, run, problem = 0, 0, 0, 0, ""

    def ended(label: str) -> Place:
        size = f"found a run of {end - start} bytes, expected at most {MOST_BYTES >> 20} MiB"
        return Place(label, name, start, end - start, problem or (size if end - start > MOST_BYTES else ""))

    for place in line_places(source, file, name):
        step = None if place.problem else _step_number(file, place)
        if step is not None and step <= last and end:
            run += 1
            yield ended(f"{name} run {run}")
            start, problem = place.offset, ""
        if place.problem:
            problem = problem or f"{place.label.removeprefix(name).strip()}: {place.problem}".removeprefix(": ")
        last, end = step if step is not None else last, place.offset + place.length
    if end or problem:
        yield ended(name if not run else f"{name} run {run + 1}")


def _step_number(file: Path, place: Place) -> int | None:
    try:
        step: Mapping[str, Any] = json.loads(read_line(file, Place(place.label, file.name, place.offset, place.length)))
        return int(step["env_step"])
    except (UnreadableError, ValueError, RecursionError, KeyError, TypeError):
        return None
