"""The episodes of a benchmark: who plays them, their truths from the stores, and their counterfactual twins.

Each environment has a store of its own; gymnasium's are named ``gym:ID``. Every level is played once, so that no two
items share one. Several kinds of players are mixed in known shares, so that a predictor which has learned one player's
faults is not enough.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...collage import collage
from ...collage.layout import episode_tiles
from ...core.errors import CertifyError, GenerationError
from ...core.identity import below, derive_seed
from ...core.images import Frame
from ...datasets.export.base import LabelledEpisode, LabelledShard
from ...datasets.export.credit import case_of
from ...datasets.export.predictors import LoggedFailure
from ...datasets.store.config import Shard, environment, versions
from ...datasets.store.dataset_rows import plan_split, shard_sides
from ...datasets.store.splits import TRAIN, VALIDATION
from ...datasets.store.store import Store
from ...environments.base import EnvConfig, EnvProfile, Task
from ...labeling.action_log import action_log
from ...labeling.analyzer import shown_log
from ...models.extras import version_of
from ...solvers.base import Case, Solver, Unsolved, Verdict
from ...solvers.credit import RULES, TurnCredit, turn_credits
from .boosted_trees import Fitting
from .items import LOGS, PRIVATE, Truth, canonical_level, pixels_digest, plugin_of

GYM = "gym:"
"""Beginning of the names of gymnasium environments."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    # Nearly every shortest plan of both takes two thirds of the turns.
    "gym:MiniGrid-LavaCrossingS9N2-v0": {"kwargs": {"tile_size": 16}, "horizon": 22},
    "gym:Taxi-v4": {"horizon": 20},
}
"""Settings of environments that differ from the default ones."""

SOLVERS: Mapping[str, Mapping[str, Any]] = {"navigation": {"pivot_rule": "exact"}}
"""Settings of solvers: a pivot by the straight-line distance would be decided by the logged distances."""


@dataclass(frozen=True)
class Certified:
    """A complete episode of a store with its truth."""

    episode: LabelledEpisode
    level: str
    pivot_step: int | None
    failure_mode: str | None
    action_log: str
    """Full log, one line per step."""
    turns: Sequence[TurnCredit] = ()
    """Gain or loss of each turn; empty where the solver measures nothing."""

    @property
    def name(self) -> str:
        """Id of the episode."""
        return self.episode.episode["episode_id"]

    def log(self, log: str) -> str:
        """Return the log of an item: ``full``, or ``actions`` alone."""
        actions = self.episode.episode["actions"]
        return self.action_log if log == LOGS[0] else action_log((), actions, [{}] * len(actions))

    def fitting(self, log: str) -> Fitting:
        """Return the episode as training data of the baselines."""
        row = self.episode.episode
        shown = LoggedFailure.of_record(
            {name: row[name] for name in ("env", "horizon", "actions", "initial_state", "env_config")}
            | {"action_log": self.log(log), "pivot_step": self.pivot_step, "failure_mode": self.failure_mode}
        )
        return Fitting(shown, self.pivot_step is not None, self.turns)


def settings_of(env: str) -> dict[str, Any]:
    """Return the settings of an environment of the benchmark that differ from its plugin's default ones."""
    named = {"id": env.removeprefix(GYM)} if env.startswith(GYM) else {}
    return {**named, **SETTINGS.get(env, {})}


def check_ready(levels: Mapping[str, int]) -> None:
    """Check that every gymnasium environment can be made and labelled, before any store is built.

    Raises:
        ConfigError: one cannot.
    """
    for env in levels:
        if env.startswith(GYM):
            kind = environment(plugin_of(env))
            kind.check_ready(config_of(env))


def config_of(env: str) -> EnvConfig:
    """Return the config of an environment of the benchmark."""
    return environment(plugin_of(env)).config_type.model_validate(settings_of(env))


def store_configs(levels: Mapping[str, int], seed: int) -> dict[str, dict[str, Any]]:
    """Return the configs of the stores of a benchmark, by the names of their folders."""
    return {
        store_of(env): {
            "environments": {plugin_of(env): {"tasks": tasks, "settings": settings_of(env)}},
            "rollouts": 1,
            "seed": seed,
            "solvers": {name: settings for name, settings in SOLVERS.items() if name == env},
            "policy": mixed_policy(plugin_of(env)),
            "validation_fraction": 0.5,
        }
        for env, tasks in levels.items()
    }


def store_of(env: str) -> str:
    """Return the name of the folder of the store of an environment, in the private part."""
    return f"{PRIVATE}/{env.removeprefix(GYM).replace('/', '-')}"


def simulator_versions(levels: Mapping[str, int]) -> dict[str, str]:
    """Return the versions that a benchmark depends on."""
    simulators = filter(None, (config_of(env).simulator for env in levels))
    return versions() | {package: version_of(package) for package in simulators}


def read_episodes(store: Store, env: str) -> dict[str, list[Certified]]:
    """Return the complete episodes of an environment whose truth is certain, by their split.

    A level that another seed generated, too, counts once, and one on both sides not among the held-out ones.
    """
    plan = plan_split(store)
    sides: dict[str, list[Certified]] = {VALIDATION: [], TRAIN: []}
    for shard in store.config.shards():
        if shard.env == plugin_of(env):
            for side, each in _read(store, shard, shard_sides(store, shard, plan[shard])):
                sides[side].append(each)
    fitted = {each.level: each for each in sides[TRAIN]}
    others = {each.level: each for each in sides[VALIDATION] if each.level not in fitted}
    return {VALIDATION: [*others.values()], TRAIN: [*fitted.values()]}


def _read(store: Store, shard: Shard, sides: Mapping[str, str]) -> list[tuple[str, Certified]]:
    labelled = LabelledShard(store, shard, sides)
    solver = store.run.envs[shard.env].solver()
    episodes = [each for each in labelled.episodes() if each.label is not None or not each.episode["failed"]]
    try:
        measured = solver.measure([case_of(each) for each in episodes])
    except CertifyError:  # a convention has no measure
        measured = [None] * len(episodes)
    read: list[tuple[str, Certified]] = []
    for each, needs in zip(episodes, measured, strict=True):
        label = each.label
        # By a convention the last submission is the pivot; elsewhere a failure without a fatal action was never lost.
        lost = label is not None and (not label["fallback"] or solver.kind == "convention")
        turns = (
            () if needs is None or isinstance(needs, Unsolved) else turn_credits(case_of(each), needs, RULES["pivot"])
        )
        infos = [json.loads(step["info"]) for step in each.steps]
        fields = environment(shard.env).profile.log_fields
        certified = Certified(
            each,
            _level(each),
            label["pivot_step"] if lost and label is not None else None,
            label["failure_mode"] if lost and label is not None else None,
            shown_log(each.prompt) if label is not None else action_log(fields, each.episode["actions"], infos),
            turns,
        )
        read.append((each.side, certified))
    return read


def _level(each: LabelledEpisode) -> str:
    """Return the canonical level; one of gymnasium is its task and its first picture, because seeds may share it."""
    row = each.episode
    if row["env"] != plugin_of(GYM):
        return canonical_level({"env": row["env"], "initial_state": row["initial_state"]})
    return f"{row['instruction']} {pixels_digest(each.frames.pixels(each.steps[0]['frame_id']))}"


# Kinds of players


PLAYERS: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("players.yaml").read_text(encoding="utf-8")
)
"""Weight and habits of each kind by its name, the default one first."""


def mixed_policy(env: str) -> dict[str, Any]:
    """Return the config of the policy that plays an environment of the benchmark."""
    weights = {name: kind["weight"] for name, kind in PLAYERS.items()}
    habits = {name: {env: kind["habits"][env]} for name, kind in PLAYERS.items() if env in kind["habits"]}
    return {"name": "mixed", "options": {"weights": weights, "habits": habits}}


# Counterfactual twins: a second level in which the same actions have the same logged effects, and another pivot. A
# predictor from the log alone gives one answer to both, so at most one of them is right. Candidates come from the
# environment's own generator; the logged actions are played in each, and its solver labels the fitting ones.

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
