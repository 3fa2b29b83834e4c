"""The environments of a run: the levels that each has in an update, and the figures of each next to those of all.

An update plays as many levels of each environment in every update, in proportion to given weights or to the number of
its levels. Advantages, credit, hindsight and the solver's answers come from the episodes of one environment alone; the
optimiser steps mix the turns of all. A run of one environment is a mixture of one.
"""

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from ...environments.turns import Turn
from ...models.extras import need
from ...rollouts.base import Status, TaskRollouts
from ..config import EXTRA
from .advantages import Groups, group, is_silent
from .config import RlConfig
from .hindsight.analysis import Failures, UpdateSamples
from .hindsight.corrections import correction_figures
from .learner import INFORMED, ScoredTurn, hindsight_figures
from .levels import Levels, count_levels, first_turns, played_by
from .levels import Played as HeldOut
from .losses import sampler_weights

torch: Any = need("torch", EXTRA)

Line = dict[str, Any]


@dataclass(slots=True)
class Clock:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to the seconds of a phase."""
        started = perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + perf_counter() - started, 3)


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes of an update."""

    indices: Sequence[int]
    """Indices of the training levels in ``rollouts``."""
    rollouts: Sequence[TaskRollouts]
    """Rollouts that are trained on."""
    first: Sequence[TaskRollouts]
    """Rollouts of the levels before any was replaced; success and return are logged for these."""
    resampled: int
    """Levels that were replaced."""


def play_update(
    levels: Levels, number: int, config: RlConfig, play: Callable[[Sequence[int]], list[TaskRollouts]]
) -> Played:
    """Play the levels of update ``number``, and other levels in place of silent ones, as the config says.

    Args:
        levels: levels of the run.
        number: number of the update.
        config: settings of the run.
        play: returns the rollouts of the training levels with some indices.
    """
    indices = levels.sample(number, config)
    first, others, resampled = play(indices), levels.others(number, config), 0
    rollouts = list(first)
    for _ in range(config.resample):
        silent = [place for place, task in enumerate(rollouts) if is_silent(task, config)][: len(others)]
        if not silent:
            break
        chosen, others = others[: len(silent)], others[len(silent) :]
        resampled += len(chosen)
        for place, index, task in zip(silent, chosen, play(chosen), strict=True):
            indices[place], rollouts[place] = index, task
    return Played(indices, rollouts, first, resampled)


def teacher_warning(line: Line) -> str | None:
    """Return the message about a Teacher that does not tell the pivot's action from others, if it is one."""
    informed = line["teacher_informed"]
    if informed is None or informed >= INFORMED:
        return None
    return (
        f"warning: the Teacher hardly tells the pivot's action from others (teacher_informed {informed:+.3f} nats, "
        f"expected {INFORMED} or more): the distillation then raises what failed. Start from a checkpoint that "
        "reads hindsight, or keep the Teacher apart with --teacher-weights start"
    )


def generator_logprobs(rollouts: Sequence[TaskRollouts]) -> dict[tuple[str, int], Sequence[float] | None]:
    """Return the log-probabilities that the generator reported, by episode and step."""
    return {
        (step.episode_id, step.t): step.response_logprobs
        for task in rollouts
        for episode in task.episodes
        for step in episode.steps
    }


def with_sampler_weights(
    scored: Sequence[ScoredTurn], rollouts: Sequence[TaskRollouts], most: float
) -> list[ScoredTurn]:
    """Return the turns with truncated importance weights, 1 where the generator reported no log-probabilities."""
    generated = generator_logprobs(rollouts)
    weighted: list[ScoredTurn] = []
    for each in scored:
        logprobs, old = generated.get((each.turn.episode_id, each.turn.t)), each.tokens.old
        reported = logprobs is not None and len(logprobs) == len(old)
        weights = sampler_weights(old, torch.tensor(logprobs), most) if reported else torch.ones_like(old)
        weighted.append(replace(each, tokens=replace(each.tokens, sampler_weight=weights)))
    return weighted


def cost_figures(tokens: int, seconds: Mapping[str, float]) -> Line:
    """Return reply tokens per second of an update, and the peak memory of this process so far in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "tokens_per_second": round(tokens / max(1e-9, sum(seconds.values())), 1),
        "peak_memory": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak,
    }


def outcomes(rollouts: Sequence[TaskRollouts], groups: Groups) -> Line:
    """Return the outcomes of the episodes of an update, as shares."""
    episodes = [episode for task in rollouts for episode in task.episodes]
    complete = [episode for episode in episodes if episode.status is Status.COMPLETE]
    steps = [step for episode in complete for step in episode.steps]
    count = max(1, len(complete))
    return {
        "episodes": len(complete),
        "errors": len(episodes) - len(complete),
        "success": sum(bool(episode.success) for episode in complete) / count,
        "return": sum(episode.episode_return for episode in complete) / count,
        "zero_variance": groups.zero_variance / max(1, groups.count),
        "all_failed": groups.all_failed / max(1, groups.count),
        "steps": len(steps),
        "format_broken": sum(not step.action_valid for step in steps) / max(1, len(steps)),
        "replies_cut": sum(step.finish_reason == "length" for step in steps) / max(1, len(steps)),
    }


def token_figures(rollouts: Sequence[TaskRollouts], scored: Sequence[ScoredTurn]) -> Line:
    """Return counts of tokens, and the mean distance between log-probabilities of the generator and the scorer."""
    generated = generator_logprobs(rollouts)
    valid = sum(int(each.tokens.valid.sum()) for each in scored)
    entropies = [each.entropy[each.tokens.valid] for each in scored if each.entropy is not None]
    lengths = [len(each.turn.student.tokens) for each in scored]
    weights = [
        each.tokens.sampler_weight[each.tokens.valid] for each in scored if each.tokens.sampler_weight is not None
    ]
    differences = []
    for each in scored:
        logprobs, tokens = generated.get((each.turn.episode_id, each.turn.t)), each.tokens
        if logprobs is not None and len(logprobs) == len(tokens.old):
            differences.append((torch.tensor(logprobs) - tokens.old)[tokens.valid].abs())
    return {
        "tokens": valid,
        "entropy": torch.cat(entropies).mean().item() if valid and entropies else None,
        "reply_tokens": sum(lengths) / max(1, len(lengths)),
        "reply_tokens_max": max(lengths, default=0),
        "sampler_weight": torch.cat(weights).mean().item() if weights else None,
        "placeholders": sum(int((~each.tokens.valid).sum()) for each in scored),
        "opd_active": sum(int(each.tokens.active.sum()) for each in scored) / max(1, valid),
        "generator_difference": torch.cat(differences).mean().item() if differences else None,
    }


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


def played_in_all(measured: Sequence[tuple[HeldOut, list[TaskRollouts]]]) -> HeldOut:
    """Return the figures of held-out levels of all environments, from those of each and its records."""
    if len(measured) == 1:
        return measured[0][0]
    return played_by([task for _, records in measured for task in records])


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
