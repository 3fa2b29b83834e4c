"""The episodes of a benchmark: who plays them, and their truths from the stores.

Each environment has a store of its own; gymnasium's are named ``gym:ID``. Every level is played once, so that no two
items share one. Several kinds of players are mixed in known shares, so that a predictor which has learned one player's
faults is not enough.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ...core.errors import CertifyError
from ...datasets.export.base import LabelledEpisode, LabelledShard
from ...datasets.export.credit import case_of
from ...datasets.export.predictors import LoggedFailure
from ...datasets.store.config import Shard, environment, versions
from ...datasets.store.dataset_rows import TRAIN, VALIDATION, plan_split, shard_sides
from ...datasets.store.store import Store
from ...environments.base import EnvConfig
from ...labeling.action_log import action_log
from ...labeling.analyzer import shown_log
from ...models.extras import version_of
from ...solvers.base import Unsolved
from ...solvers.credit import RULES, TurnCredit, turn_credits
from .boosted_trees import Fitting
from .items import LOGS, PRIVATE, canonical_level, pixels_digest, plugin_of

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
    """Return the complete episodes of an environment whose truth is certain, by their side of the split.

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
