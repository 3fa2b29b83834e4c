"""Recorder of episodes: a gymnasium wrapper that writes PIVOT's JSON lines while any trainer runs.

::

    env = pivot.Recorder(gymnasium.make(...), "rollouts")
    observation, info = env.reset(seed=7)
    env.note(response=text)              # the reply of the model, before its step
    observation, *rest = env.step(action)

Each process and each copy writes a file of its own, one line per finished episode; pictures are stored once, under the
hash of their pixels. ``pivot import rollouts --format jsonl --out DIR`` reads the folder.

A recorder never ends the run that it records: what JSON cannot hold, such as NaN, is null and named in
``unrecorded``, and where an episode cannot be written, one warning says so and the run goes on.
"""

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from ..core.errors import CertifyError
from ..core.images import encode_png, frame_id
from ..solvers.closure.actions import named_actions
from .episode import FORMAT

_NOTES = ("response", "finish_reason", "token_ids", "logprobs", "action_valid", "observation", "messages", "actions")


class EpisodeWriter:
    """Lines of one process in a folder, and its pictures."""

    def __init__(self, folder: str | Path) -> None:
        """Write into ``folder``, which is made if needed."""
        self.folder = Path(folder)
        (self.folder / "frames").mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO | None = None
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
        if self._file is None:
            name = f"episodes-{os.getpid()}-{uuid4().hex[:8]}.jsonl"
            self._file = (self.folder / name).open("ab")
        self._file.write(json.dumps(episode, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy, also one in another process, has in common; it opens a file of its own."""
        return {"folder": self.folder, "_file": None, "_stored": set(self._stored)}


def recordable(value: Any, where: str, lost: list[str]) -> Any:
    """Return a copy of a value as JSON data; what JSON cannot hold becomes None and is named in ``lost``."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return recordable(value.tolist(), where, lost)
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {str(key): recordable(each, f"{where}.{key}", lost) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [recordable(each, f"{where}[{index}]", lost) for index, each in enumerate(value)]
    lost.append(f"{where}: {value!r:.80}" if isinstance(value, float) else f"{where}: {type(value).__name__}")
    return None


@contextmanager
def harmless(folder: Path) -> Iterator[None]:
    """Turn an error of the recorder into one warning: the run that is recorded matters more."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - notes, pictures, states and disks of other people
        warnings.warn(
            f"pivot.Recorder: part of an episode is not in {folder}: {type(error).__name__}: {error}", stacklevel=4
        )


class _Episode:
    """An unfinished episode."""

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
        self.lost: list[str] = []
        """Places and kinds of values that could not be recorded."""
        if options and "state" not in options:
            self.record["options"] = recordable(options, "options", self.lost)
        self.env = inner if hasattr(inner, "changing_state") else None
        self._names = _names_of(inner) if self.env is None else {}
        if self.env is not None:
            self.record["initial_state"] = self.env.state_text()
            self.record["instruction"] = getattr(self.env, "task_instruction", None)

    def state(self) -> str | None:
        """Return the state of an environment of PIVOT."""
        return None if self.env is None else self.env.changing_state()

    def add(self, turn: Mapping[str, Any], action: Any) -> None:
        """Add a turn."""
        where = f"turns[{len(self.record['turns'])}]"
        plain = recordable(action, f"{where}.action", self.lost)
        own = self._names.get(json.dumps(plain), plain) if self.env is None else _name_in(self.env, plain)
        shown = own if isinstance(own, str | int | dict) else json.dumps(own)
        self.record["turns"].append({"actions": [shown], **recordable(turn, where, self.lost)})

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
            **({"unrecorded": self.lost} if self.lost else {}),
        }


def _names_of(env: Any) -> dict[str, str]:
    """Return the names of the actions of an environment by their value as JSON; none for unusual action spaces."""
    try:
        return {json.dumps(value): name for name, value in named_actions(env).items()}
    except (CertifyError, AttributeError):
        return {}


def _name_in(env: Any, action: Any) -> Any:
    """Return the name of an action of an environment of PIVOT, or the action itself."""
    if not isinstance(action, int) or not env.actions:
        return action
    return getattr(env, "action_name", (*env.actions, env.profile.unusable_action).__getitem__)(action)


def _origin(env: Any, wrapped: Any = None) -> dict[str, Any]:
    """Return environment and settings as the record has them; the limit of a wrapper TimeLimit is the horizon."""
    profile, config, limit = getattr(env, "profile", None), getattr(env, "config", None), _time_limit(wrapped)
    if profile is not None and config is not None:
        settings = config.decisive()
        if limit is not None:
            settings["horizon"] = min(limit, settings["horizon"])
        return {"env": profile.name, "env_config": settings, "recorder": "pivot"}
    spec = getattr(env, "spec", None)
    if spec is None:
        return {"env": type(env).__name__, "env_config": {} if limit is None else {"horizon": limit}}
    return _of_spec(spec, limit) | ({"recorder": "pivot"} if _only_usual(wrapped) else {})


def _only_usual(env: Any) -> bool:
    """Return whether no wrapper can change a level or a step: the seed then makes the level that PIVOT makes of it."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env) not in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
            return False
        env = env.env
    return True


def _of_spec(spec: Any, limit: int | None) -> dict[str, Any]:
    """Return ``gym`` and the settings of an environment that ``gymnasium.make`` made."""
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    settings: dict[str, Any] = {"id": spec.id, "kwargs": recordable(kwargs, "kwargs", [])}
    package = str(spec.entry_point).partition(":")[0].partition(".")[0]
    settings |= {} if package == "gymnasium" else {"package": package}
    settings |= {} if limit is None else {"horizon": limit}
    return {"env": "gym", "env_config": settings}


def _time_limit(env: Any) -> int | None:
    """Return the smallest number of steps after which a wrapper ends an episode; None without such a wrapper."""
    limits: list[int] = []
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(int(env._max_episode_steps))
        env = env.env
    return min(limits, default=None)


def _note(episode: _Episode | None, notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notes of a turn as JSON data; unknown ones are named in a warning."""
    if unknown := sorted(notes.keys() - set(_NOTES)):
        warnings.warn(
            f"pivot.Recorder: note() has no parameter {unknown[0]!r}, which is not recorded (parameters: "
            f"{', '.join(_NOTES)})",
            stacklevel=3,
        )
    lost: list[str] = [] if episode is None else episode.lost
    where = "notes" if episode is None else f"turns[{len(episode.record['turns'])}]"
    kept: dict[str, Any] = {}
    for name in _NOTES:
        if name in notes:
            before = len(lost)
            value = recordable(notes[name], f"{where}.{name}", lost)
            kept[name] = None if name in ("token_ids", "logprobs") and len(lost) > before else value
    return kept


def _part(observations: Any, index: int) -> Any:
    """Return the observation of one environment of a vector; a dict or tuple of arrays is one in each of its parts."""
    if isinstance(observations, Mapping):
        return {name: _part(each, index) for name, each in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_part(each, index) for each in observations)
    return observations[index]


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that records every episode of an environment; of a vector environment it is a :class:`VectorRecorder`."""

    def __new__(cls, env: Any = None, folder: str | Path = "", **keywords: Any) -> Any:
        """Choose the wrapper for single and for vector environments; a copy is made without arguments."""
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
        with harmless(self._writer.folder):
            self._notes |= _note(self._episode, notes)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; one that is not over is written as it is."""
        self._give_up()
        observation, info = self.env.reset(seed=seed, options=options)
        with harmless(self._writer.folder):
            self._episode = _Episode(self.env, seed, options, self._policy)
            self._frame = self._picture(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Record a step."""
        episode, notes, self._notes = self._episode, self._notes, {}
        taken, turn = action, dict[str, Any]()
        with harmless(self._writer.folder):
            turn = {"frame": self._frame, "state": None if episode is None else episode.state()}
            taken = deepcopy(action)  # an environment may change it
        observation, reward, terminated, truncated, info = self.env.step(action)
        if episode is not None:
            self._episode = None  # where what follows fails, nothing is written of this episode
            with harmless(self._writer.folder):
                episode.add(turn | {"reward": reward} | notes, taken)
                self._frame = self._picture(observation)
                if terminated or truncated:
                    ends = {"terminated": bool(terminated), "truncated": bool(truncated)}
                    self._writer.line(episode.end(self._frame, info, **ends))
                else:
                    self._episode = episode
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Write an unfinished episode, and close."""
        self._give_up()
        with harmless(self._writer.folder):
            self._writer.close()
        super().close()

    def _picture(self, observation: Any) -> str | None:
        name = self._writer.picture(observation)
        if name is None and self.env.render_mode == "rgb_array":
            return self._writer.picture(self.env.render())
        return name

    def _give_up(self) -> None:
        episode, self._episode, self._notes = self._episode, None, {}
        if episode is not None and episode.record["turns"]:
            with harmless(self._writer.folder):
                self._writer.line(episode.end(self._frame, {}, terminated=False, truncated=False))


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
        with harmless(self._writer.folder):
            self._notes[index] |= _note(self._episodes[index], notes)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those of ``options["reset_mask"]``."""
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        seeds: Any = (
            seed if isinstance(seed, Sequence) else [None if seed is None else seed + i for i in range(self.num_envs)]
        )
        kept = {name: value for name, value in (options or {}).items() if name != "reset_mask"}
        chosen = list(map(int, np.flatnonzero(mask)))
        for index in chosen:
            self._give_up(index)
        observations, info = self.env.reset(seed=cast(Any, seed), options=options)  # takes the mask out of the options
        for index in chosen:
            self._begin(index, observations, seeds[index], kept)
        return observations, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Record a step of every environment."""
        states, taken = list[Any]([None] * self.num_envs), actions
        with harmless(self._writer.folder):
            states = [None if each is None else each.state() for each in self._episodes]
            taken = deepcopy(actions)
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        for index, episode in enumerate(self._episodes):
            if episode is None:  # this step has reset it
                if self._mode == AutoresetMode.NEXT_STEP:
                    self._begin(index, observations, None, {})
                continue
            ends = {"terminated": bool(terminations[index]), "truncated": bool(truncations[index])}
            same_step = any(ends.values()) and self._mode == AutoresetMode.SAME_STEP
            self._episodes[index] = None  # where what follows fails, nothing is written of this episode
            with harmless(self._writer.folder):
                turn = {"frame": self._frames[index], "reward": rewards[index], "state": states[index]}
                episode.add(turn | self._notes[index], _part(taken, index))
                last = infos["final_obs"][index] if same_step else _part(observations, index)
                self._frames[index] = self._writer.picture(last)
                if same_step:
                    episode.env = None  # it shows the next level already
                if any(ends.values()):
                    info = infos.get("final_info", {}) if same_step else infos
                    self._writer.line(episode.end(self._frames[index], {"success": _success_of(info, index)}, **ends))
                else:
                    self._episodes[index] = episode
            self._notes[index] = {}
            if same_step:
                self._begin(index, observations, None, {})
        return observations, rewards, terminations, truncations, infos

    def close(self, **keywords: Any) -> None:
        """Write unfinished episodes, and close."""
        for index in range(self.num_envs):
            self._give_up(index)
        with harmless(self._writer.folder):
            self._writer.close()
        super().close(**keywords)

    def _begin(self, index: int, observations: Any, seed: int | None, options: Mapping[str, Any]) -> None:
        with harmless(self._writer.folder):
            envs = getattr(self.env.unwrapped, "envs", None)
            inner = envs[index] if envs is not None else None
            episode = _Episode(inner, seed, options, self._policy)
            if inner is None:
                episode.record |= self._remote_level(index)
            self._frames[index] = self._writer.picture(_part(observations, index))
            self._episodes[index], self._notes[index] = episode, {}

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
                self._remote_origin = {} if spec is None else _of_spec(spec, spec.max_episode_steps)
        if self._remote_origin.get("recorder") is None:
            return self._remote_origin
        instruction = (
            vector.get_attr("task_instruction")[index]
            if vector.call("has_wrapper_attr", "task_instruction")[index]
            else None
        )
        return self._remote_origin | {"initial_state": vector.call("state_text")[index], "instruction": instruction}

    def _give_up(self, index: int) -> None:
        episode, self._episodes[index] = self._episodes[index], None
        if episode is not None and episode.record["turns"]:
            with harmless(self._writer.folder):
                self._writer.line(episode.end(self._frames[index], {}, terminated=False, truncated=False))


def _success_of(infos: Mapping[str, Any], index: int) -> Any:
    values = infos.get("success")
    return None if values is None else values[index]
