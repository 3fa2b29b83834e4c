"""Evaluation folders of VAGEN (mll-lab-nu/VAGEN, ``vagen/evaluate/vision_workflow.py``).

Sokoban and FrozenLake are replayed. Navigation has no state in its logs; see :mod:`.vagen_navigation`.

A folder per episode holds ``metrics.json``, ``assistant_texts.json``, ``messages.json`` and ``images/turn_TT_II.png``,
where turn 1 is the observation of ``reset``. ``infos`` has one entry more than ``rewards``, for the same reason. A turn
runs several actions (``max_actions_per_step``) and stops at the first word that is not an action
(``vagen/envs/{sokoban,frozenlake}``). Maps of FrozenLake are generated from the seed, as
``vagen/envs/frozenlake/utils/utils.py`` does; rooms of Sokoban come from gym-sokoban, and are read from the text or the
first picture.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import networkx as nx
import numpy as np

from ..core.errors import ConfigError
from ..core.plugins import Settings
from ..environments.sokoban import SokobanEnv
from ..rollouts.policies.imported import LeftOut
from .base import Importer, Place, UnreadableError, read_json_below
from .boards import levels_in
from .distances import StartSettings
from .episode import RecordedEpisode
from .levels import LeftOutError
from .vagen_navigation import Files, Metrics, navigation_episode

_METRICS = "metrics.json"
_ACTIONS = ("up", "down", "left", "right")
_FORMAT_REWARD = {"sokoban": 0.1, "frozenlake": 0.02}
_MOST_ACTIONS = {"sokoban": 3, "frozenlake": 5}
"""Defaults of VAGEN's configs."""
_NATIVE, _WINDOW = 64, 512
"""Largest side of a cell and of a window of gymnasium's FrozenLake, pixels."""


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
        return _Folder(source, place.path, metrics, env).episode()


class _Folder:
    """One episode."""

    def __init__(self, source: Path, path: str, metrics: Metrics, env: str) -> None:
        self._source, self._path, self._metrics = source, path, metrics
        self._config, self._files = metrics.env_config, Files(source, path, metrics)
        self.env = env
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
        try:
            messages = json.loads(read_json_below(self._source, f"{self._path}/messages.json"))
            content = next(each["content"] for each in messages if each["role"] == "user")
        except (UnreadableError, ValueError, RecursionError, LookupError, TypeError, StopIteration):
            return None
        parts = [{"text": content}] if isinstance(content, str) else content
        text = "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        return next(iter(levels_in(SokobanEnv, text)), None)

    def _turn(self, t: int) -> dict[str, Any]:
        metrics, config = self._metrics, self._config
        info = self._files.info(t + 1)
        words, correct = info.get("actions"), bool(info.get("format_correct"))
        if not isinstance(words, list):
            raise UnreadableError(f"turn {t} has no list infos[{t + 1}].actions")
        actions = _leading_actions(words)
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


def _leading_actions(words: list[Any]) -> list[str]:
    """Return the actions up to the first word that is none."""
    actions: list[str] = []
    for word in words:
        if word not in _ACTIONS:
            break
        actions.append(word)
    return actions


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
