"""Evaluation folders of VAGEN (mll-lab-nu/VAGEN, ``vagen/evaluate/vision_workflow.py``).

Sokoban and FrozenLake are replayed. Navigation gets a bound from its distances.

A folder per episode holds ``metrics.json``, ``assistant_texts.json``, ``messages.json`` and ``images/turn_TT_II.png``,
where turn 1 is the observation of ``reset``. ``infos`` has one entry more than ``rewards``, for the same reason. A turn
runs several actions (``max_actions_per_step``) and stops at the first word that is not an action
(``vagen/envs/{sokoban,frozenlake}``). Maps of FrozenLake are generated from the seed, as
``vagen/envs/frozenlake/utils/utils.py`` does; rooms of Sokoban come from gym-sokoban, and are read from the text or the
first picture.

Logs of navigation (``vagen/envs/navigation/navigation_env.py``, ``vagen/envs/navigation/utils/parse.py``) hold no
state. A turn runs up to ``max_actions_per_step`` actions, in order, up to the first word that is not one, and none if
the format of the reply is wrong. ``infos[t+1].distance`` is the distance after the turn. The episode ends within
``success_threshold`` metres of the target, after ``max_steps`` actions, or after ``max_turns`` turns, so that before
each turn at most ``min(max_steps - actions so far, max_actions_per_step * turns left)`` actions can still run. A
movement is ``step_length`` long on AI2-THOR's grid of 0.1 m: a length between two points of it reaches the farther one.
``infos[0].initial_state``, which VAGEN does not write, may hold the state text of PIVOT's navigation.
"""

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import networkx as nx
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ..core.errors import ConfigError
from ..core.plugins import Settings
from ..environments.sokoban import SokobanEnv
from ..rollouts.policies.imported import LeftOut
from .base import Importer, Place, UnreadableError, read_json_below
from .boards import levels_in
from .chat import message_of
from .distances import StartSettings, start_distance
from .episode import RecordedEpisode
from .levels import LeftOutError

_METRICS = "metrics.json"
_MOVES = {move: move for move in ("up", "down", "left", "right")}
"""Actions of both puzzles."""
_FORMAT_REWARD = {"sokoban": 0.1, "frozenlake": 0.02}
_MOST_ACTIONS = {"sokoban": 3, "frozenlake": 5}
"""Defaults of VAGEN's configs."""
_NATIVE, _WINDOW = 64, 512
"""Largest side of a cell and of a window of gymnasium's FrozenLake, pixels."""

ACTIONS = {
    "move_forward": "moveahead",
    "move_backward": "moveback",
    "move_right": "moveright",
    "move_left": "moveleft",
    "turn_right": "rotateright",
    "turn_left": "rotateleft",
    "look_up": "lookup",
    "look_down": "lookdown",
}
"""PIVOT's names of VAGEN's actions in navigation."""
_GRID = 0.1
"""Distance of the points of AI2-THOR's grid, metres."""
Item = TypeVar("Item")
_TEXTS = TypeAdapter(list[str])
_MESSAGES = TypeAdapter(list[dict[str, Any]])


class Metrics(BaseModel):
    """The fields of ``metrics.json`` that are read."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = None
    env_config: dict[str, Any] = {}
    env_name: str | None = None
    rollout_id: str | None = None
    model: str | None = None
    max_turns: int = Field(ge=1, le=1000)
    rewards: list[float]
    infos: list[dict[str, Any]]
    success: bool | None = None
    terminated: bool = False
    finish_reason: str | None = None


class _Config(BaseModel):
    """Settings of VAGEN's navigation, with its defaults."""

    max_actions_per_step: int = Field(default=5, ge=1, le=64)
    max_steps: int = Field(default=30, ge=1, le=1000)
    success_threshold: float = Field(default=1.0, ge=0)
    step_length: float = Field(default=0.3, gt=0)
    eval_set: str = "base"


class _Info(BaseModel):
    """Log of a turn."""

    distance: float = Field(ge=0, allow_inf_nan=False)
    actions: list[Any]
    format_correct: bool = False
    last_action_success: bool | None = None
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one episode."""

    source: Path
    path: str
    """Folder of the episode, relative to the source."""
    metrics: Metrics

    def info(self, index: int) -> Mapping[str, Any]:
        """Return an entry of ``infos``.

        Raises:
            UnreadableError: there are too few of them.
        """
        infos, turns = self.metrics.infos, len(self.metrics.rewards)
        if len(infos) < turns + 1:
            raise UnreadableError(f"found {len(infos)} infos for {turns} rewards, expected one more than rewards")
        return infos[index]

    def reply(self, t: int, info: Mapping[str, Any]) -> str | None:
        """Return the raw reply of a turn; texts that are not one per turn hold summaries and are not used."""
        if isinstance(raw := info.get("llm_raw_response"), str):
            return raw
        texts = self.listed("assistant_texts.json", _TEXTS)
        return texts[t] if len(texts) == len(self.metrics.rewards) else None

    def picture(self, turn: int) -> str | None:
        """Return the name of the first picture of a turn, counted from 0; None without one."""
        name = f"{self.path}/images/turn_{turn + 1:02d}_01.png"
        return name if (self.source / name).is_file() else None

    def add_prompts(self, episode: RecordedEpisode) -> None:
        """Add the prompts of ``messages.json``, if it has a reply per turn; user message k has pictures k."""
        try:
            messages = [message_of(each, []).sent for each in self.listed("messages.json", _MESSAGES)]
        except UnreadableError:
            return
        for number, message in enumerate((each for each in messages if each["role"] == "user"), 1):
            pictures = [part for part in message["content"] if part["type"] == "image"]
            for index, part in enumerate(pictures, 1):
                part["image"] = f"{self.path}/images/turn_{number:02d}_{index:02d}.png"
        replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if len(replies) == len(episode.turns):
            for turn, index in zip(episode.turns, replies, strict=True):
                turn.prompt = messages[:index]

    def listed(self, name: str, kind: TypeAdapter[list[Item]]) -> list[Item]:
        """Return the list in a JSON file of the folder; empty where it cannot be read."""
        try:
            return kind.validate_json(read_json_below(self.source, f"{self.path}/{name}"))
        except (UnreadableError, ValidationError):
            return []


class VagenImporter(Importer):
    """Reader of a folder of episodes, at any depth."""

    config_type: ClassVar[type[Settings]] = StartSettings
    settings: StartSettings

    def places(self, source: Path) -> Iterator[Place]:
        """Yield the folders that hold a ``metrics.json``, by name."""
        if not source.is_dir():
            raise ConfigError(f"{source} is not a folder; name the dump_dir of VAGEN's evaluation")
        for folder, folders, files in os.walk(source):
            folders.sort()
            if _METRICS in files:
                name = Path(folder).relative_to(source).as_posix()
                yield Place(name, name)

    def read(self, source: Path, place: Place) -> RecordedEpisode:
        """Read one folder."""
        metrics = Metrics.model_validate_json(read_json_below(source, f"{place.path}/{_METRICS}"))
        env = _environment(metrics, place.path)
        if env == "navigation":
            return navigation_episode(metrics, self.settings, Files(source, place.path, metrics))
        return _Folder(Files(source, place.path, metrics), env).episode()


class _Folder:
    """One episode."""

    def __init__(self, files: Files, env: str) -> None:
        self._files, self._metrics, self._config, self.env = files, files.metrics, files.metrics.env_config, env
        self._most = int(self._config.get("max_actions_per_step", _MOST_ACTIONS[self.env]))

    def episode(self) -> RecordedEpisode:
        """Return the record."""
        metrics = self._metrics
        turns = len(metrics.rewards)
        if not turns:
            raise UnreadableError(f"found no turns; the episode ended with {metrics.finish_reason!r}")
        state, origin = self._state()
        episode = RecordedEpisode.model_validate(
            {
                "env": self.env,
                "env_config": self._settings(),
                "id": metrics.rollout_id,
                "policy": metrics.model,
                "initial_state": state,
                "state_source": origin,
                "actions_per_turn": self._most,
                "turns": [self._turn(t) for t in range(turns)],
                "final_frame": self._files.picture(turns),
                "success": metrics.success,
                "terminated": metrics.terminated,
                "truncated": metrics.finish_reason == "max_turns" and turns >= metrics.max_turns,
                "vagen": {"seed": metrics.seed, "finish_reason": metrics.finish_reason, "rewards": metrics.rewards},
            }
        )
        self._files.add_prompts(episode)
        return episode

    def _settings(self) -> dict[str, Any]:
        """Return the settings of PIVOT's environment with VAGEN's rules and rewards."""
        rewards = {"step_reward": 0.0, "success_reward": float(self._config.get("success_reward", 1.0))}
        shared = {"horizon": self._metrics.max_turns, "actions_per_turn": self._most, **rewards}
        if self.env == "frozenlake":
            size = int(self._config.get("size", 4))
            cell = min(_NATIVE * size, _WINDOW) // size
            return {**shared, "size": size, "frozen_probability": float(self._config.get("p", 0.8)), "cell": cell}
        rows, cols = self._config.get("dim_room", (6, 6))
        boxes = int(self._config.get("num_boxes", 1))
        return {**shared, "rows": rows, "cols": cols, "boxes": boxes, "box_on_reward": 0.0, "box_off_reward": 0.0}

    def _state(self) -> tuple[str | None, str]:
        """Return the initial state and its origin; None to read it from the first picture."""
        config = self._config
        if self.env == "sokoban":
            return self._state_of_text(), "row"
        if config.get("is_slippery") or config.get("slip_prob"):
            raise LeftOutError(LeftOut.SETTINGS, "its ice is slippery, so that its actions do not decide the states")
        if config.get("desc") is not None:
            return "\n".join(map(str, config["desc"])), "row"
        if self._metrics.seed is None or self._metrics.seed < 0:
            return None, "picture"
        return generated_map(int(config.get("size", 4)), float(config.get("p", 0.8)), self._metrics.seed), "seed"

    def _state_of_text(self) -> str | None:
        """Return the room of a text observation."""
        messages = self._files.listed("messages.json", _MESSAGES)
        content = next((each.get("content") for each in messages if each.get("role") == "user"), None)
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        return next(iter(levels_in(SokobanEnv, text)), None)

    def _turn(self, t: int) -> dict[str, Any]:
        metrics, config = self._metrics, self._config
        info = self._files.info(t + 1)
        words, correct = info.get("actions"), bool(info.get("format_correct"))
        if not isinstance(words, list):
            raise UnreadableError(f"turn {t} has no list infos[{t + 1}].actions")
        actions = _leading_actions(words, _MOVES)
        reward = metrics.rewards[t]
        salvaged = config.get("strict_format") is False or reward > 0  # older versions ran them in Sokoban, too
        if self.env == "sokoban" and not correct and not salvaged:
            actions = []
        if actions and (correct or self.env == "sokoban"):
            reward -= float(config.get("format_reward", _FORMAT_REWARD[self.env]))
        return {
            "frame": self._files.picture(t),
            "response": self._files.reply(t, info),
            "actions": actions,
            "action_valid": correct and bool(actions),
            "reward": reward,
        }


def _environment(metrics: Metrics, path: str) -> str:
    """Return PIVOT's name of the environment."""
    tag = (metrics.model_extra or {}).get("tag_id", "")
    named = f"{metrics.env_name or ''} {tag} {path.rpartition('/')[2]}".casefold()
    if "navigation" in named or {"eval_set", "step_length", "success_threshold"} & metrics.env_config.keys():
        return "navigation"
    if "frozen" in named or {"is_slippery", "slip_prob", "p"} & metrics.env_config.keys():
        return "frozenlake"
    if "sokoban" in named or {"dim_room", "num_boxes"} & metrics.env_config.keys():
        return "sokoban"
    raise LeftOutError(
        LeftOut.ENVIRONMENT,
        f"found the environment {metrics.env_name!r}, this format is read for Sokoban, FrozenLake and navigation",
    )


def _leading_actions(words: list[Any], names: Mapping[str, str]) -> list[str]:
    """Return the actions up to the first word that is none."""
    return [names[word] for word in takewhile(lambda word: isinstance(word, str) and word in names, words)]


def generated_map(size: int, p: float, seed: int) -> str:
    """Return the map of FrozenLake that VAGEN generates: cells, start and goal drawn until a path joins the two."""
    if not (2 <= size <= 64 and 0 < p <= 1):
        raise LeftOutError(LeftOut.SETTINGS, f"found size {size} and p {p}, expected 2 to 64 and a probability above 0")
    rng = np.random.default_rng(seed)
    for _ in range(10_000):
        board = rng.choice(["F", "H"], size=(size, size), p=[p, 1 - p])
        start, goal = (tuple(map(int, rng.integers(size, size=2))) for _ in range(2))
        if start == goal:
            continue
        board[start], board[goal] = "S", "G"
        ice = nx.grid_2d_graph(size, size)
        ice.remove_nodes_from([cell for cell in list(ice) if board[cell] == "H"])
        if nx.has_path(ice, start, goal):
            return "\n".join("".join(row) for row in board)
    raise LeftOutError(LeftOut.NO_STATE, f"no map of size {size} and p {p} has a path")


# Navigation


def navigation_episode(metrics: Metrics, settings: StartSettings, files: Files) -> RecordedEpisode:
    """Return an episode of navigation.

    Raises:
        UnreadableError: it has no turns, or a turn has no distance.
        pydantic.ValidationError: a setting or an entry of ``infos`` is of another form.
    """
    config, turns = _Config.model_validate(metrics.env_config), len(metrics.rewards)
    if not turns:
        raise UnreadableError(f"found no turns; the episode ended with {metrics.finish_reason!r}")
    raw = [files.info(t + 1) for t in range(turns)]
    infos = [_Info.model_validate(each) for each in raw]
    runs: list[list[str]] = []
    for info in infos:
        most = min(config.max_actions_per_step, config.max_steps - sum(map(len, runs)))
        runs.append(_leading_actions(info.actions if info.format_correct else [], ACTIONS)[:most])
    success = metrics.success is True
    is_over = success or metrics.terminated or turns >= metrics.max_turns
    state = metrics.infos[0].get("initial_state")
    length = math.ceil(config.step_length / _GRID - 1e-6) * _GRID
    first = start_distance(infos[0].distance, len(runs[0]), length, settings.nearest_start)
    without_state = {
        "distances": [first, *(info.distance for info in infos)],
        "left": _left(config, metrics.max_turns, [len(each) for each in runs]),
        "starts": (settings.nearest_start, settings.farthest_start),
        "solver": {"step": round(length, 6), "threshold": config.success_threshold},
    }
    return RecordedEpisode.model_validate(
        {
            "env": "navigation",
            "env_config": {"horizon": metrics.max_turns * config.max_actions_per_step},
            "id": metrics.rollout_id,
            "policy": metrics.model,
            "instruction": infos[-1].instruction,
            "actions_per_turn": config.max_actions_per_step,
            "turns": [
                {
                    "frame": files.picture(t),
                    "response": files.reply(t, raw[t]),
                    "actions": runs[t],
                    "action_valid": info.format_correct and bool(runs[t]),
                    "info": {"dist": info.distance, "last_action_success": info.last_action_success},
                }
                for t, info in enumerate(infos)
            ],
            "final_frame": files.picture(turns),
            "success": success if is_over else None,
            "terminated": metrics.terminated,
            "truncated": is_over and not metrics.terminated,
            "vagen": {
                "seed": metrics.seed,
                "eval_set": config.eval_set,
                "finish_reason": metrics.finish_reason,
                "rewards": metrics.rewards,
            },
            **(without_state if state is None else {"initial_state": state}),
        }
    )


def _left(config: _Config, most_turns: int, counts: list[int]) -> list[int]:
    """Return the most actions that could still run, before the first turn and after each."""
    moments = range(len(counts) + 1)
    return [
        max(0, min(config.max_steps - sum(counts[:t]), config.max_actions_per_step * (most_turns - t))) for t in moments
    ]
