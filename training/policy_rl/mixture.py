"""The environments of a run: the levels that each has in an update, and the figures of each next to those of all.

An update plays as many levels of each environment in every update, in proportion to given weights or to the number of
its levels. Advantages, credit, hindsight and the solver's answers come from the episodes of one environment alone; the
optimiser steps mix the turns of all. A run of one environment is a mixture of one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...environments.turns import Turn
from ...rollouts.base import TaskRollouts
from .advantages import Groups, group
from .config import RlConfig
from .figures import Line, Played, outcomes, token_figures
from .hindsight.analysis import Failures, UpdateSamples
from .hindsight.corrections import correction_figures
from .learner import ScoredTurn, hindsight_figures
from .levels import Levels, count_levels, first_turns, played_by
from .levels import Played as HeldOut


@dataclass(frozen=True, slots=True)
class Member:
    """One environment of a run."""

    levels: Levels
    config: RlConfig
    """Settings of a run of this environment alone, with its levels per update."""

    @property
    def env(self) -> str:
        """Name of the environment."""
        return self.config.env


def shares(prompts: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return the levels of each environment in an update: at least one each, ``prompts`` in total.

    Sainte-Laguë's method: each further level goes to the environment whose weight per level, ``w / (2 n + 1)`` with
    its ``n`` levels so far, is largest; the first one wins a tie.
    """
    counts = dict.fromkeys(weights, 1)
    for _ in range(prompts - len(counts)):
        counts[max(weights, key=lambda name: weights[name] / (2 * counts[name] + 1))] += 1
    return counts


def member_configs(config: RlConfig) -> list[RlConfig]:
    """Return the settings of a run of each environment alone, with its levels per update.

    Raises:
        PluginError, ConfigError: an environment does not exist, or its settings cannot be used.
    """
    alone = {name: config.alone(name) for name in config.names}
    levels = {name: float(count_levels(each)) for name, each in alone.items()}
    named = {name: each.weight for name, each in config.environments.items()}
    weighted = any(weight is not None for weight in named.values())
    weights = {name: named[name] or 1.0 for name in alone} if weighted else levels
    counts = shares(config.prompts, weights)
    return [config.alone(name, counts[name]) for name in alone]


def first_turns_of(members: Sequence[Member], count: int) -> list[Turn]:
    """Return the first turns of ``count`` training levels, of all environments in turn."""
    counts = [count // len(members) + (place < count % len(members)) for place in range(len(members))]
    return [turn for each, few in zip(members, counts, strict=True) if few for turn in first_turns(each.levels, few)]


def counts_of_levels(members: Sequence[Member]) -> dict[str, Any]:
    """Return the levels of both splits, as ``run.json`` holds them: by environment if there are several."""
    counts = {
        each.env: {"train": len(each.levels.train), "validation": len(each.levels.validation)} for each in members
    }
    return counts if len(members) > 1 else counts[members[0].env]


def played_in_all(measured: Sequence[tuple[HeldOut, list[TaskRollouts]]], seed: int) -> HeldOut:
    """Return the figures of held-out levels of all environments, from those of each and its records."""
    if len(measured) == 1:
        return measured[0][0]
    return played_by([task for _, records in measured for task in records], seed)


@dataclass(frozen=True, slots=True)
class EnvUpdate:
    """The episodes of an update in one environment, their analysis and the samples made from them."""

    member: Member
    played: Played
    groups: Groups
    """Groups of the rollouts that are trained on."""
    failures: Failures
    samples: UpdateSamples


def joined_groups(groups: Sequence[Groups]) -> Groups:
    """Return the groups of several environments as one."""
    if len(groups) == 1:
        return groups[0]
    counts = [sum(len(turns) for turns in each.turns.values()) for each in groups]
    scores = [(each.mean_credit, count) for each, count in zip(groups, counts, strict=True) if count]
    credit = sum((mean or 0.0) * count for mean, count in scores) / max(1, sum(counts))
    return Groups(
        {name: value for each in groups for name, value in each.advantages.items()},
        sum(each.count for each in groups),
        sum(each.zero_variance for each in groups),
        sum(each.all_failed for each in groups),
        {name: turns for each in groups for name, turns in each.turns.items()},
        None if groups[0].mean_credit is None else credit,
        sum(each.uncredited for each in groups),
    )


def joined_failures(failures: Sequence[Failures]) -> Failures:
    """Return the failures of several environments as one."""
    first, *others = failures
    for each in others:
        first = replace(
            first,
            episodes=[*first.episodes, *each.episodes],
            verdicts={**first.verdicts, **each.verdicts},
            readings={**first.readings, **each.readings},
            objections={**first.objections, **each.objections},
            skills={**first.skills, **each.skills},
        )
    return first


def joined_samples(samples: Sequence[UpdateSamples]) -> UpdateSamples:
    """Return the samples of several environments as one; their turns one environment after the other."""
    return UpdateSamples(
        [turn for each in samples for turn in each.turns],
        {key: picture for each in samples for key, picture in each.pictures.items()},
        {name: context for each in samples for name, context in each.hindsight.items()},
    )


def rollouts_of(parts: Sequence[EnvUpdate]) -> list[TaskRollouts]:
    """Return the rollouts that an update trains on."""
    return [task for each in parts for task in each.played.rollouts]


def update_figures(parts: Sequence[EnvUpdate], scored: Sequence[ScoredTurn]) -> Line:
    """Return the figures of an update over all environments, and over each as ``ENV/NAME`` if there are several.

    Args:
        parts: the update in each environment.
        scored: the scored turns of :func:`joined_samples`, in its order.
    """
    line = _figures(parts, scored)
    first = 0
    for each in parts if len(parts) > 1 else ():
        last = first + len(each.samples.turns)
        line |= {f"{each.member.env}/{name}": value for name, value in _figures([each], scored[first:last]).items()}
        first = last
    return line


def _figures(parts: Sequence[EnvUpdate], scored: Sequence[ScoredTurn]) -> Line:
    """Return figures of episodes and tokens of some environments."""
    config = parts[0].member.config
    first = [group(each.played.first, each.member.config) if each.played.resampled else each.groups for each in parts]
    samples = joined_samples([each.samples for each in parts])
    return {
        **outcomes([task for each in parts for task in each.played.first], joined_groups(first)),
        "resampled": sum(each.played.resampled for each in parts),
        **joined_groups([each.groups for each in parts]).figures(),
        **joined_failures([each.failures for each in parts]).figures(),
        **samples.figures(),
        **correction_figures(samples.turns),
        **hindsight_figures(scored, config.beta),
        **token_figures(rollouts_of(parts), scored),
        "teacher_unscored": sum(
            each.turn.teacher is not None and not bool(each.tokens.active.any()) for each in scored
        ),
    }
