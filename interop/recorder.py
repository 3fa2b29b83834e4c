"""Recorder of episodes: a gymnasium wrapper that writes PIVOT's JSON lines while any trainer runs.

::

    env = pivot.Recorder(gymnasium.make(...), "rollouts")
    observation, info = env.reset(seed=7)
    env.note(response=text)              # the reply of the model, before its step
    observation, *rest = env.step(action)

Each process writes a file of its own, one line per finished episode; pictures are stored once, under the hash of their
pixels. ``pivot import rollouts --format jsonl --out DIR`` reads the folder.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from ..core.images import encode_png, frame_id
from .episode import FORMAT

_NOTES = ("response", "finish_reason", "token_ids", "logprobs", "action_valid", "observation", "messages", "actions")


class EpisodeWriter:
    """Lines of one process in a folder, and its pictures."""

    def __init__(self, folder: str | Path) -> None:
        """Write into ``folder``, which is made if needed."""
        self.folder = Path(folder)
        (self.folder / "frames").mkdir(parents=True, exist_ok=True)
        self._file = (self.folder / f"episodes-{os.getpid()}-{uuid4().hex[:8]}.jsonl").open("ab")
        self._stored: set[str] = set()

    def picture(self, frame: Any) -> str | None:
        """Store a picture; return its name, or None for something other than an RGB frame."""
        if not (isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3):
            return None
        frame = np.ascontiguousarray(frame)
        key = frame_id(frame)
        name = f"frames/{key}.png"
        if key not in self._stored:
            target = self.folder / name
            if not target.exists():
                half = target.with_name(f".{key}-{os.getpid()}.tmp")
                half.write_bytes(encode_png(frame))
                half.replace(target)
            self._stored.add(key)
        return name

    def line(self, episode: Mapping[str, Any]) -> None:
        """Append an episode as one line."""
        self._file.write(json.dumps(episode, allow_nan=False, default=_plain).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain(value: Any) -> Any:
    """Return numpy values as plain data."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a Recorder cannot store {type(value).__name__} {value!r:.80}; note numbers, texts and lists")


class _Episode:
    """One episode in the making."""

    def __init__(self, env: Any, seed: int | None, options: Mapping[str, Any] | None, policy: str | None) -> None:
        """Describe the episode that ``env`` has just begun; ``env`` is None where it cannot be reached."""
        inner = getattr(env, "unwrapped", None)
        self.record: dict[str, Any] = {
            "format": FORMAT,
            **_origin(inner, env),
            "seed": seed,
            "policy": policy,
            "turns": [],
        }
        if options and "state" not in options:
            self.record["options"] = options
        self.env = inner if hasattr(inner, "changing_state") else None
        if self.env is not None:
            self.record["initial_state"] = self.env.state_text()
            self.record["instruction"] = getattr(self.env, "task_instruction", None)

    def state(self) -> str | None:
        """Return the state of an environment of PIVOT."""
        return None if self.env is None else self.env.changing_state()

    def action_of(self, action: Any) -> Any:
        """Return an action as the format has it."""
        plain = _plain(action) if isinstance(action, np.generic | np.ndarray) else action
        names = getattr(self.env, "actions", None)
        if isinstance(plain, int) and self.env is not None and names is not None:
            named = getattr(self.env, "action_name", (*names, self.env.profile.unusable_action).__getitem__)
            return named(plain)
        return plain if isinstance(plain, str | int | dict) else json.dumps(plain, default=_plain)

    def end(self, frame: str | None, info: Mapping[str, Any], *, terminated: bool, truncated: bool) -> dict[str, Any]:
        """Complete the record."""
        success = info.get("success")
        reported = success if isinstance(success, bool | np.bool_) else None
        return self.record | {
            "final_frame": frame,
            "final_state": self.state(),
            "success": None if reported is None else bool(reported),
            "terminated": terminated,
            "truncated": truncated,
        }


def _origin(env: Any, wrapped: Any = None) -> dict[str, Any]:
    """Return environment and settings as the record has them; the limit of a wrapper TimeLimit is the horizon."""
    profile, config, limit = getattr(env, "profile", None), getattr(env, "config", None), _time_limit(wrapped)
    if profile is not None and config is not None:
        settings = config.decisive()
        if limit is not None:
            settings["horizon"] = min(limit, settings["horizon"])
        return {"env": profile.name, "env_config": settings, "recorder": "pivot"}
    spec = getattr(env, "spec", None)
    name = spec.id if spec is not None else type(env).__name__
    return {"env": name} if limit is None else {"env": name, "env_config": {"horizon": limit}}


def _time_limit(env: Any) -> int | None:
    """Return the smallest number of steps after which a wrapper ends an episode; None without such a wrapper."""
    limits: list[int] = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, gymnasium.wrappers.TimeLimit):
            limits.append(int(env._max_episode_steps))
        env = env.env
    return min(limits, default=None)


def _note(kind: str, notes: Mapping[str, Any]) -> dict[str, Any]:
    if unknown := sorted(notes.keys() - set(_NOTES)):
        raise TypeError(f"{kind}.note() has no parameter {unknown[0]!r} (parameters: {', '.join(_NOTES)})")
    return dict(notes)


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that records every episode of an environment; of a vector environment it is a :class:`VectorRecorder`."""

    def __new__(cls, env: Any, folder: str | Path, **keywords: Any) -> Any:
        """Choose the wrapper for single and for vector environments."""
        if isinstance(env, VectorEnv):
            return VectorRecorder(cast(Any, env), folder, **keywords)
        return super().__new__(cls)

    def __init__(self, env: Any, folder: str | Path, *, policy: str | None = None) -> None:
        """Record into ``folder``; ``policy`` names the model that acts."""
        super().__init__(env)
        self._writer, self._policy = EpisodeWriter(folder), policy
        self._episode: _Episode | None = None
        self._notes: dict[str, Any] = {}
        self._frame: str | None = None

    def note(self, **notes: Any) -> None:
        """Add to the next step: response, finish_reason, token_ids, logprobs, action_valid, observation, actions."""
        self._notes |= _note("Recorder", notes)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; one that is not over is written as it is."""
        self._give_up()
        observation, info = self.env.reset(seed=seed, options=options)
        self._episode = _Episode(self.env, seed, options, self._policy)
        self._frame = self._picture(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Record a step."""
        episode, state = self._episode, None if self._episode is None else self._episode.state()
        observation, reward, terminated, truncated, info = self.env.step(action)
        if episode is not None:
            turn = {"actions": [episode.action_of(action)], "reward": float(reward), "state": state}
            episode.record["turns"].append({"frame": self._frame, **turn, **self._notes})
            self._notes, self._frame = {}, self._picture(observation)
            if terminated or truncated:
                ends = {"terminated": bool(terminated), "truncated": bool(truncated)}
                self._writer.line(episode.end(self._frame, info, **ends))
                self._episode = None
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Write an unfinished episode, and close."""
        self._give_up()
        self._writer.close()
        super().close()

    def _picture(self, observation: Any) -> str | None:
        name = self._writer.picture(observation)
        if name is None and self.env.render_mode == "rgb_array":
            return self._writer.picture(self.env.render())
        return name

    def _give_up(self) -> None:
        if self._episode is not None and self._episode.record["turns"]:
            self._writer.line(self._episode.end(self._frame, {}, terminated=False, truncated=False))
        self._episode, self._notes = None, {}


class VectorRecorder(VectorWrapper[Any, Any, Any]):
    """Wrapper that records every episode of a vector environment, in all three modes of autoreset.

    States are recorded where the environments are in this process (``SyncVectorEnv``). Of PIVOT's environments in other
    processes (``AsyncVectorEnv``) the settings and the level of every episode are; of others the seed of ``reset`` is,
    and episodes after the first of each environment have neither.
    """

    def __init__(self, env: Any, folder: str | Path, *, policy: str | None = None) -> None:
        """Record into ``folder``; ``policy`` names the model that acts."""
        super().__init__(env)
        self._writer, self._policy = EpisodeWriter(folder), policy
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._episodes: list[_Episode | None] = [None] * env.num_envs
        self._notes: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self._frames: list[str | None] = [None] * env.num_envs
        self._remote_origin: dict[str, Any] | None = None

    def note(self, index: int, **notes: Any) -> None:
        """Add to the next step of one environment; see :meth:`Recorder.note`."""
        self._notes[index] |= _note("VectorRecorder", notes)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those of ``options["reset_mask"]``."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        seeds: Any = (
            seed if isinstance(seed, Sequence) else [None if seed is None else seed + i for i in range(self.num_envs)]
        )
        kept = {name: value for name, value in (options or {}).items() if name != "reset_mask"}
        observations, info = self.env.reset(seed=cast(Any, seed), options=options)  # takes the mask out of the options
        for index in map(int, np.flatnonzero(mask)):
            self._give_up(index)
            self._begin(index, observations[index], seeds[index], kept)
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Record a step of every environment."""
        states = [None if each is None else each.state() for each in self._episodes]
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        for index in range(self.num_envs):
            episode = self._episodes[index]
            if episode is None:  # this step has reset it
                if self._mode == AutoresetMode.NEXT_STEP:
                    self._begin(index, observations[index], None, {})
                continue
            ended = bool(terminations[index]) or bool(truncations[index])
            same_step = ended and self._mode == AutoresetMode.SAME_STEP
            last = infos["final_obs"][index] if same_step else observations[index]
            turn = {"actions": [episode.action_of(actions[index])], "reward": float(rewards[index])}
            self._add(index, episode, turn | {"state": states[index]}, last)
            if not ended:
                continue
            if same_step:
                episode.env = None  # it shows the next level already
            info = {} if same_step else {"success": _success_of(infos, index)}
            ends = {"terminated": bool(terminations[index]), "truncated": bool(truncations[index])}
            self._writer.line(episode.end(self._frames[index], info, **ends))
            self._episodes[index] = None
            if same_step:
                self._begin(index, observations[index], None, {})
        return observations, rewards, terminations, truncations, infos

    def close(self, **keywords: Any) -> None:
        """Write unfinished episodes, and close."""
        for index in range(self.num_envs):
            self._give_up(index)
        self._writer.close()
        super().close(**keywords)

    def _begin(self, index: int, observation: Any, seed: int | None, options: Mapping[str, Any]) -> None:
        envs = getattr(self.env.unwrapped, "envs", None)
        inner = envs[index] if envs is not None else None
        episode = _Episode(inner, seed, options, self._policy)
        if inner is None:
            episode.record |= self._remote_level(index)
        self._episodes[index], self._notes[index] = episode, {}
        self._frames[index] = self._writer.picture(np.asarray(observation))

    def _remote_level(self, index: int) -> dict[str, Any]:
        """Return settings and level of an environment in another process, or the id if it is not one of PIVOT's."""
        vector: Any = self.env.unwrapped
        spec = self.env.spec
        if self._remote_origin is None:
            asks = hasattr(vector, "call") and all(vector.call("has_wrapper_attr", "changing_state"))
            if asks:
                profile, config = vector.get_attr("profile")[0], vector.get_attr("config")[0]
                self._remote_origin = {"env": profile.name, "env_config": config.decisive(), "recorder": "pivot"}
            else:
                self._remote_origin = {} if spec is None else {"env": spec.id}
        if "env_config" not in self._remote_origin:
            return self._remote_origin
        instruction = (
            vector.get_attr("task_instruction")[index]
            if vector.call("has_wrapper_attr", "task_instruction")[index]
            else None
        )
        return self._remote_origin | {"initial_state": vector.call("state_text")[index], "instruction": instruction}

    def _add(self, index: int, episode: _Episode, turn: dict[str, Any], observation: Any) -> None:
        episode.record["turns"].append({"frame": self._frames[index], **turn, **self._notes[index]})
        self._notes[index], self._frames[index] = {}, self._writer.picture(np.asarray(observation))

    def _give_up(self, index: int) -> None:
        episode = self._episodes[index]
        if episode is not None and episode.record["turns"]:
            self._writer.line(episode.end(self._frames[index], {}, terminated=False, truncated=False))
        self._episodes[index] = None


def _success_of(infos: Mapping[str, Any], index: int) -> Any:
    values = infos.get("success")
    return None if values is None else values[index]
