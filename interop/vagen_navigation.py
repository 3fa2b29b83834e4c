"""Files of an episode of VAGEN's evaluation, and its episodes of navigation, whose logs hold no state.

Read in mll-lab-nu/VAGEN: ``vagen/envs/navigation/navigation_env.py`` and ``vagen/envs/navigation/utils/parse.py``. A
turn runs up to ``max_actions_per_step`` actions, in order, up to the first word that is not one, and none where the
format of the reply is wrong. ``infos[t+1].distance`` is the distance after the turn. The episode ends within
``success_threshold`` metres of the target, after ``max_steps`` actions, or after ``max_turns`` turns, so that before
each turn at most ``min(max_steps - actions so far, max_actions_per_step * turns left)`` actions can still run. A
movement is ``step_length`` long on AI2-THOR's grid of 0.1 m: a length between two points of it reaches the farther one.

``infos[0].initial_state``, which VAGEN does not write, may hold the state text of PIVOT's navigation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from .base import UnreadableError, read_json_below
from .chat import message_of
from .distances import StartSettings, start_distance
from .episode import RecordedEpisode

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
"""PIVOT's names of VAGEN's actions."""
_GRID = 0.1
"""Distance of the points of AI2-THOR's grid, metres."""
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
        texts = self._texts()
        return texts[t] if len(texts) == len(self.metrics.rewards) else None

    def picture(self, turn: int) -> str | None:
        """Return the name of the first picture of a turn, counted from 0; None without one."""
        name = f"{self.path}/images/turn_{turn + 1:02d}_01.png"
        return name if (self.source / name).is_file() else None

    def add_prompts(self, episode: RecordedEpisode) -> None:
        """Add the prompts of ``messages.json``, if it has a reply per turn; user message k has pictures k."""
        try:
            raw = _MESSAGES.validate_json(read_json_below(self.source, f"{self.path}/messages.json"))
            messages = [message_of(each, []).sent for each in raw]
        except (UnreadableError, ValidationError):
            return
        for number, message in enumerate((each for each in messages if each["role"] == "user"), 1):
            pictures = [part for part in message["content"] if part["type"] == "image"]
            for index, part in enumerate(pictures, 1):
                part["image"] = f"{self.path}/images/turn_{number:02d}_{index:02d}.png"
        replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
        if len(replies) == len(episode.turns):
            for turn, index in zip(episode.turns, replies, strict=True):
                turn.prompt = messages[:index]

    def _texts(self) -> list[str]:
        try:
            return _TEXTS.validate_json(read_json_below(self.source, f"{self.path}/assistant_texts.json"))
        except (UnreadableError, ValidationError):
            return []


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
        runs.append(_executed(info)[:most])
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


def _executed(info: _Info) -> list[str]:
    """Return the actions that ran, if the episode did not end among them."""
    actions: list[str] = []
    for word in info.actions if info.format_correct else ():
        if not isinstance(word, str) or word not in ACTIONS:
            break
        actions.append(ACTIONS[word])
    return actions


def _left(config: _Config, most_turns: int, counts: list[int]) -> list[int]:
    """Return the most actions that could still run, before the first turn and after each."""
    moments = range(len(counts) + 1)
    return [
        max(0, min(config.max_steps - sum(counts[:t]), config.max_actions_per_step * (most_turns - t))) for t in moments
    ]
