"""Counterfactual twins: a second level in which the same actions have the same logged effects, and another pivot.

Whoever reads the log alone gives one answer to both, so at most one of them is right. Candidates come from the
environment's own generator; the logged actions are played in each, and its solver labels those that fit.
"""

import json
import random
from collections.abc import Sequence
from typing import Any

from ...collage import collage
from ...collage.layout import episode_tiles
from ...core.errors import GenerationError
from ...core.identity import below, derive_seed
from ...core.images import Frame
from ...datasets.store.config import environment
from ...environments.base import EnvProfile, Task
from ...solvers.base import Case, Solver, Verdict
from .episodes import Certified, config_of
from .items import LOGS, Truth, canonical_level, pixels_digest, plugin_of

POOL = 1000
"""Generated levels that may hold the twins of an environment, in the whole benchmark."""
LEAST = 200
"""Levels of the smallest share."""
FITTING = 15
"""Candidates with the logged effects that are labelled; of these, every pivot is as likely as another."""


def twin_log(profile: EnvProfile) -> str:
    """Return the log of twins: the actions alone where the full one measures the way to the goal."""
    return LOGS["dist" in profile.log_fields]


class Twins:
    """Finds the twins of episodes of one environment."""

    def __init__(self, env: str, secret: str, share: float, solver: Solver, used: set[str]) -> None:
        """Generate the levels; those in ``used`` are not taken, and a taken one is added to it."""
        self._kind, self._secret, self._solver, self._used = environment(plugin_of(env)), secret, solver, used
        config = config_of(env)
        self._game: Any = self._kind(config)
        self._fields = self._kind.profile.log_fields if twin_log(self._kind.profile) == LOGS[0] else ()
        self._pool: dict[str, list[Task]] = {}
        for number in range(max(LEAST, round(share * POOL))):
            try:
                tasks = self._kind.make_level(config, derive_seed("twin", secret, env, number))
            except GenerationError:
                continue
            for task in tasks:
                self._pool.setdefault(task.instruction, []).append(task)

    def of(self, certified: Certified) -> tuple[str, Truth] | None:
        """Return the level of a twin of a failure, and its truth; None without any."""
        row = certified.episode.episode
        infos = [json.loads(step["info"]) for step in certified.episode.steps]
        rng = random.Random(derive_seed("twin", self._secret, certified.name))
        self._game.draw_frames = False
        fitting: list[Task] = []
        for task in self._pool.get(row["instruction"], ()):
            if len(fitting) < FITTING and self._fits(task, row["actions"], infos):
                fitting.append(task)
        cases = [Case(task.initial_state, row["actions"], row["horizon"]) for task in fitting]
        labels = zip(fitting, self._solver.certify(cases) if cases else [], strict=True)
        by_pivot: dict[int, list[tuple[Task, Verdict]]] = {}
        for task, label in labels:
            if isinstance(label, Verdict) and not label.fallback and label.pivot_step != certified.pivot_step:
                by_pivot.setdefault(label.pivot_step, []).append((task, label))
        while by_pivot:
            pivot = sorted(by_pivot)[below(rng, len(by_pivot))]
            for task, label in by_pivot.pop(pivot):
                if (level := self._level(task)) not in self._used:
                    self._used.add(level)
                    self._pool[row["instruction"]].remove(task)
                    return task.initial_state, Truth("", level, pivot, label.failure_mode)
        return None

    def _fits(self, task: Task, actions: Sequence[str], infos: Sequence[dict[str, Any]]) -> bool:
        """Whether a level makes the actions a failure with the same log."""
        game = self._game
        game.reset(options={"state": task.initial_state})
        for t, (action, logged) in enumerate(zip(actions, infos, strict=True)):
            _, _, terminated, truncated, info = game.step(game.encode_action(action))
            if info["success"] or (terminated or truncated) != (t == len(actions) - 1):
                return False
            if any(info.get(name) != logged.get(name) for name in self._fields):
                return False
        return True

    def _level(self, task: Task) -> str:
        """Return the canonical level as :func:`.episodes.read_episodes` does."""
        if self._kind.profile.name != "gym":
            return canonical_level({"env": self._kind.profile.name, "initial_state": task.initial_state})
        return f"{task.instruction} {pixels_digest(self._frames(task.initial_state, ())[0])}"

    def _frames(self, initial_state: str, actions: Sequence[str]) -> list[Frame]:
        self._game.draw_frames = True
        frames = [self._game.reset(options={"state": initial_state})[0]]
        frames += [self._game.step(self._game.encode_action(action))[0] for action in actions]
        self._game.draw_frames = False
        return frames

    def collage(self, initial_state: str, actions: Sequence[str]) -> Frame:
        """Return the collage of some actions in a level."""
        tiles = episode_tiles(self._kind.profile.tiles, self._frames(initial_state, actions))
        return collage(tiles.frames, tiles.labels)
