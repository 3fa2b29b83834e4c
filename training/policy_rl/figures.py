"""The figures of an update of Stage II, as a line of ``metrics.jsonl`` holds them, and its seconds by phase."""

import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from ...models.extras import need
from ...rollouts.base import Status, TaskRollouts
from ..config import EXTRA
from .advantages import Groups
from .hindsight.analysis import Failures, UpdateSamples
from .hindsight.corrections import correction_figures
from .learner import INFORMED, ScoredTurn, hindsight_figures

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
    steps = [step for task in rollouts for episode in task.episodes for step in episode.steps]
    generated = {(step.episode_id, step.t): step.response_logprobs for step in steps}
    valid = sum(int(each.tokens.valid.sum()) for each in scored)
    entropies = [each.entropy[each.tokens.valid] for each in scored if each.entropy is not None]
    lengths = [len(each.turn.student.tokens) for each in scored]
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
        "placeholders": sum(int((~each.tokens.valid).sum()) for each in scored),
        "opd_active": sum(int(each.tokens.active.sum()) for each in scored) / max(1, valid),
        "generator_difference": torch.cat(differences).mean().item() if differences else None,
    }


@dataclass(frozen=True, slots=True)
class Update:
    """The episodes of an update, their analysis and the samples made from them."""

    rollouts: Sequence[TaskRollouts]
    groups: Groups
    failures: Failures
    samples: UpdateSamples


def update_figures(made: Update, scored: Sequence[ScoredTurn], beta: float) -> Line:
    """Return the figures of the episodes and tokens of an update.

    Args:
        made: the update.
        scored: the scored turns of its samples, in their order.
        beta: slope of the distillation gate.
    """
    return {
        **outcomes(made.rollouts, made.groups),
        **made.groups.figures(),
        **made.failures.figures(),
        "no_other_step": sum(each.no_other_step for each in made.samples.hindsight.values()),
        **correction_figures(made.samples.turns),
        **hindsight_figures(scored, beta),
        **token_figures(made.rollouts, scored),
    }
