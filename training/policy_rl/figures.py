"""Episodes of an update of Stage II, and its figures that come from them, from tokens, the clock and the memory."""

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from ...models.extras import need
from ...rollouts.base import Status, TaskRollouts
from ..config import EXTRA
from .advantages import Groups, is_silent
from .config import RlConfig
from .learner import INFORMED, ScoredTurn
from .levels import Levels
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
