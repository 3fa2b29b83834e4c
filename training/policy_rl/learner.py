"""One update of Stage II: score the turns of a batch, then step through shuffled minibatches of them.

Old, reference and Teacher log-probabilities are computed once before the first step; the gate follows the Student as it
changes, without a gradient. The token counts of a minibatch are computed before its first micro-batch, so the gradients
of micro-batches and processes add up to the same sum however the minibatch is split.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import cos, inf, isfinite, pi
from typing import Any

from ...core.errors import TrainingError
from ...core.identity import derive_seed
from ...models.extras import need
from ..config import EXTRA
from ..ranks import ALONE, Ranks
from ..tensors import Scalar, TokenMask, TokenValues
from .config import RlConfig
from .extensions.objectives import CANDIDATES, TEACHER_CANDIDATES, Objective, objective_of
from .hindsight.contexts import arm_of
from .losses import (
    Loss,
    TokenBatch,
    Weights,
    gate,
    is_clipped,
    k3,
    preference_loss,
    ratio_of,
    stage_two_loss,
    witness_loss,
)
from .scoring import (
    SAMPLED,
    Measure,
    Measured,
    Scorer,
    Teacher,
    TurnSample,
    entropy,
    measure_pairs,
    measure_rows,
    micro_batches,
    nothing_more,
)
from .weights import ModelWeights, VisionCache, trained

torch: Any = need("torch", EXTRA)

Sums = defaultdict[str, float]
"""Sums over the tokens and steps of an update, by name."""
INFORMED = 0.1
"""Least ``teacher_informed`` in nats of a Teacher that tells the pivot's action from others: below it the gate of slope
5 is within 0.12 of 1/2 everywhere, and the printed loss raises the tokens of failures."""


@dataclass(frozen=True, slots=True)
class ScoredTurn:
    """A turn with the data of its tokens before the first step, on the CPU."""

    turn: TurnSample
    tokens: TokenBatch
    correction_reference: TokenValues | None = None
    """Log-probabilities of the correction under the weights of the start; only in the arms with a preference."""
    entropy: TokenValues | None = None
    """Entropy of the Student at each token, in nats."""

    @property
    def gap(self) -> TokenValues:
        """Teacher's log-probability minus the Student's, in nats; active tokens alone."""
        return (self.tokens.teacher - self.tokens.old)[self.tokens.active]


def join_tokens(turns: Sequence[ScoredTurn], device: Any) -> TokenBatch:
    """Return the tokens of some turns, turn after turn, on a device."""

    def joined(values: Sequence[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {name: joined([value[name] for value in values]) for name in values[0]}
        return None if values[0] is None else torch.cat(values).to(device)

    return TokenBatch(*(joined([getattr(each.tokens, name.name) for each in turns]) for name in fields(TokenBatch)))


def score_turns(
    turns: Sequence[TurnSample],
    scorer: Scorer,
    model: ModelWeights,
    reference: ModelWeights | None,
    config: RlConfig,
    frozen: Teacher | None = None,
    teacher_weights: ModelWeights | None = None,
    objective: Objective | None = None,
    ranks: Ranks = ALONE,
) -> list[ScoredTurn]:
    """Score all turns of an update; each process scores its share of the micro-batches.

    Turns with and without a Teacher do not share a micro-batch, so that a Teacher of the Student's weights goes on from
    what was computed for the beginning of the Student's prompt; where every Teacher's prompt of a micro-batch is the
    Student's own, its scores are exactly the Student's. ``teacher_weights`` are its weights, by default the model's.
    ``frozen`` is a Teacher of another model. ``objective`` may measure further quantities of the Teacher.
    """
    model.model.eval()
    cache = model.vision_cache()
    own = teacher_weights or model
    teacher = frozen or Teacher(scorer, own.vision_cache())
    students = [turn.student for turn in turns]
    lengths = [
        max(scorer.length(turn.student), 0 if turn.teacher is None else teacher.scorer.length(turn.teacher))
        for turn in turns
    ]
    batches = micro_batches(lengths, config.micro_batch_tokens, [turn.teacher is not None for turn in turns])
    mine = ranks.share(batches)
    preferred = [
        (index, turn.correction.row)
        for index, turn in enumerate(turns)
        if turn.correction is not None and arm_of(config.arm).corrects == "preference"
    ]
    further = micro_batches([scorer.length(row) for _, row in preferred], config.micro_batch_tokens)
    students += [row for _, row in preferred]
    distilled = [indices for indices in mine if turns[indices[0]].teacher is not None]
    alone = [indices for indices in mine if turns[indices[0]].teacher is None]
    alone += ranks.share([[len(turns) + index for index in each] for each in further])
    mine_scored = distilled + alone

    measure: Measure = nothing_more
    if objective is not None and objective.measures():
        measure = partial(objective.measure, config=config)
    rows = [turn.teacher or turn.student for turn in turns]

    if frozen is None and own is model:
        pairs = list(zip(students[: len(turns)], rows, strict=True))
        student, taught = measure_pairs(scorer, cache, pairs, distilled, (entropy, measure))
        student |= measure_rows(scorer, cache, students, alone, entropy)
    else:
        student = measure_rows(scorer, cache, students, mine_scored, entropy)
        taught = measure_rows(teacher.scorer, teacher.cache, rows, distilled, measure)
    before, measured = ranks.join(student), ranks.join(taught)
    under_teacher = {index: each[SAMPLED] for index, each in measured.items()}
    old = {index: each[SAMPLED] for index, each in before.items()}
    start = old
    if reference is not None:
        at_start = measure_rows(scorer, reference.vision_cache(), students, mine_scored, nothing_more)
        start = {index: each[SAMPLED] for index, each in ranks.join(at_start).items()}
    corrections = {index: start[len(turns) + place] for place, (index, _) in enumerate(preferred)}
    result = []
    for index, turn in enumerate(turns):
        valid, nothing = scorer.valid([turn.student]), torch.zeros_like(old[index])
        tokens = TokenBatch(
            old=old[index],
            reference=start[index],
            teacher=under_teacher.get(index, nothing),
            advantages=torch.full_like(old[index], turn.advantage),
            valid=valid,
            active=valid if index in under_teacher else torch.zeros_like(valid),
        )
        tokens = with_quantities(tokens, index, measured)
        result.append(ScoredTurn(turn, tokens, corrections.get(index), before[index]["entropy"]))
    return result


def with_quantities(tokens: TokenBatch, index: int, measured: Mapping[int, Measured]) -> TokenBatch:
    """Return the tokens of turn ``index`` with the quantities of the Teacher: zeros in a turn without a Teacher."""
    if not measured:
        return tokens
    values = dict(measured.get(index) or next(iter(measured.values())))
    if index not in measured:
        values = {name: each.new_zeros((len(tokens.old), *each.shape[1:])) for name, each in values.items()}
    del values[SAMPLED]
    candidates, teacher = values.pop(CANDIDATES, None), values.pop(TEACHER_CANDIDATES, None)
    return replace(tokens, candidates=candidates, teacher_candidates=teacher, quantities=values)


def hindsight_figures(scored: Sequence[ScoredTurn], beta: float) -> dict[str, float | None]:
    """Return means of gap and gate by kind of token, and the ROC area of the gap as a detector of the pivot."""
    figures: dict[str, float | None] = {}
    kinds: dict[str, list[TokenValues]] = {"": [], "_pivot_action": [], "_other_action": [], "_thinking": []}
    detector: list[tuple[float, bool]] = []
    for each in scored:
        gap, turn, active = each.gap, each.turn, each.tokens.active
        if not len(gap):
            continue
        thinks = (torch.arange(len(active)) < turn.thinking)[active]
        kinds[""].append(gap)
        kinds["_thinking"].append(gap[thinks])
        kinds["_pivot_action" if turn.at_pivot else "_other_action"].append(gap[~thinks])
        if turn.at_pivot is not None and len(gap[~thinks]):
            detector.append((-gap[~thinks].mean().item(), turn.at_pivot))
    for kind, parts in kinds.items():
        gaps = torch.cat(parts) if parts else torch.zeros(0)
        figures[f"opd_gap{kind}"] = gaps.mean().item() if len(gaps) else None
        figures[f"opd_gate{kind}"] = gate(torch.zeros_like(gaps), gaps, beta).mean().item() if len(gaps) else None
    figures["gap_detects_pivot"] = roc_area([score for score, _ in detector], [each for _, each in detector])
    figures["teacher_informed"] = _teacher_informed(detector)
    return figures


def _teacher_informed(turns: Sequence[tuple[float, bool]]) -> float | None:
    """Return the mean of minus the gap of the pivot's actions, less that of other actions; None without a pivot."""
    at_pivot = [score for score, is_pivot in turns if is_pivot]
    others = [score for score, is_pivot in turns if not is_pivot] or [0.0]
    return sum(at_pivot) / len(at_pivot) - sum(others) / len(others) if at_pivot else None


def roc_area(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the area under the ROC curve of ``scores``; None unless there are positives and negatives."""
    yes = [score for score, is_positive in zip(scores, positive, strict=True) if is_positive]
    no = [score for score, is_positive in zip(scores, positive, strict=True) if not is_positive]
    if not yes or not no:
        return None
    first, second = torch.tensor(yes, dtype=torch.float64), torch.tensor(no, dtype=torch.float64)
    difference = first[:, None] - second[None, :]
    return ((difference > 0).double() + 0.5 * (difference == 0)).mean().item()


def _log_ratio(logprobs: TokenValues, start: TokenValues, valid: TokenMask | None) -> Scalar:
    """Return the sum of ``l - l_ref`` over the valid tokens of a reply; without a mask all are."""
    difference = logprobs - start.to(logprobs.device)
    return (difference if valid is None else difference.where(valid.to(logprobs.device), 0.0)).sum()


def learning_rate(config: RlConfig, number: int) -> float:
    """Return the learning rate of update ``number``, counted from 1: it rises linearly, then follows the schedule.

    The schedules fall towards 0, which the update after the last would have.
    """
    if number < config.warmup:
        return config.lr * number / config.warmup
    start = max(1, config.warmup)
    done = (number - start) / max(1, config.updates + 1 - start)
    return config.lr * {"constant": 1.0, "linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2}[config.schedule]


class Learner:
    """The trained model and its optimiser."""

    def __init__(
        self,
        model: Any,
        scorer: Scorer,
        config: RlConfig,
        objective: Objective | None = None,
        ranks: Ranks = ALONE,
        pictures: VisionCache | None = None,
    ) -> None:
        """Make a new optimiser for ``model``, the same in all processes.

        ``objective`` is by default the one that ``config`` names. ``pictures`` is the cache of an untrained vision
        encoder.
        """
        self._pictures = pictures
        self.model, self.scorer, self.config, self.ranks = model, scorer, config, ranks
        self._trained = trained(model)
        self._distil = partial((objective or objective_of(config)).loss, config=config)
        self._weights = Weights(**{each.name: getattr(config, each.name) for each in fields(Weights)})
        self._ratios = inf, -inf
        self.optimizer = torch.optim.AdamW(
            self._trained,
            lr=config.lr,
            eps=config.adam_epsilon,
            weight_decay=config.weight_decay,
            fused=model.device.type == "cuda",  # the default there keeps a copy of all weights while it steps
        )

    def update(self, scored: Sequence[ScoredTurn], number: int) -> dict[str, float | None]:
        """Make the optimiser steps of update ``number``; return its figures.

        Raises:
            TrainingError: a gradient is not finite; the weights are then those of the last complete step.
        """
        config, sums = self.config, Sums(float)
        order = list(range(len(scored)))
        random.Random(derive_seed("minibatches", config.seed, number)).shuffle(order)
        self._ratios = inf, -inf
        lr = learning_rate(config, number)
        for each in self.optimizer.param_groups:
            each["lr"] = lr
        self.model.train(config.gradient_checkpointing)
        for first in range(0, len(order), config.minibatch):
            chosen = [scored[index] for index in order[first : first + config.minibatch]]
            self.optimizer.zero_grad(set_to_none=True)
            self._accumulate(chosen, sums)
            norm = self._stop_unless_finite(number)
            self.optimizer.step()
            sums["steps"] += 1
            sums["grad_norm"] += norm
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train(False)
        return self._figures(sums) | {"lr": lr}

    def _accumulate(self, chosen: Sequence[ScoredTurn], sums: Sums) -> None:
        """Add the gradient of a minibatch's loss, over all processes."""
        valid = sum(int(each.tokens.valid.sum()) for each in chosen)
        active = sum(int(each.tokens.active.sum()) for each in chosen)
        lengths = [self.scorer.length(each.turn.student) for each in chosen]
        batches = micro_batches(lengths, self.config.micro_batch_tokens)
        groups = [[chosen[index] for index in indices] for indices in batches]
        for group in self.ranks.share(groups):
            logprobs, tokens = self._forward(group)
            counts = {"valid_count": valid, "active_count": active}
            loss = stage_two_loss(logprobs, tokens, **counts, weights=self._weights, distil=self._distil)
            loss.total.backward()
            self._count(sums, logprobs.detach(), tokens, loss)
        self._correct(chosen, sums)
        for each in self._trained:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        self.ranks.add(each.grad for each in self._trained)

    def _correct(self, chosen: Sequence[ScoredTurn], sums: Sums) -> None:
        """Add the gradient of the corrections of a minibatch."""
        turns = [(each, each.turn.correction) for each in chosen if each.turn.correction is not None]
        if not turns:
            return
        config, prefers = self.config, arm_of(self.config.arm).corrects == "preference"
        count = len(turns) if prefers else sum(correction.supervised for _, correction in turns)
        lengths = [
            2 * max(self.scorer.length(correction.row), self.scorer.length(each.turn.student))
            if prefers
            else self.scorer.length(correction.row)
            for each, correction in turns
        ]
        batches = micro_batches(lengths, config.micro_batch_tokens)
        for group in self.ranks.share([[turns[index] for index in indices] for indices in batches]):
            rows = [correction.row for _, correction in group]
            if prefers:
                rows += [each.turn.student for each, _ in group]
            values = self.scorer(self.model, rows, self._pictures)
            parts = values.split([len(row.tokens) for row in rows])
            if prefers:
                masks = [None] * len(group) + [each.tokens.valid for each, _ in group]
                starts = [each.correction_reference for each, _ in group] + [each.tokens.reference for each, _ in group]
                ratios = torch.stack([_log_ratio(*each) for each in zip(parts, starts, masks, strict=True)])
                loss = preference_loss(ratios[: len(group)], ratios[len(group) :], config.dpo_beta, count)
            else:
                learned = [part[-each.supervised :] for part, (_, each) in zip(parts, group, strict=True)]
                loss = witness_loss(torch.cat(learned), count)
            (config.correction * loss).backward()
            sums["loss_correction"] += loss.item()
            sums["loss"] += config.correction * loss.item()

    def _forward(self, group: Sequence[ScoredTurn]) -> tuple[TokenValues, TokenBatch]:
        """Return the Student's log-probabilities, with their gradient, and the data of the same tokens."""
        rows, tokens = [each.turn.student for each in group], join_tokens(group, self.ranks.device)
        candidates = tokens.candidates
        values = self.scorer(self.model, rows, self._pictures, candidates)
        if candidates is None:
            return values, tokens
        return values[:, 0], replace(tokens, student_candidates=values[:, 1:])

    def _count(self, sums: Sums, logprobs: TokenValues, tokens: TokenBatch, loss: Loss) -> None:
        mask = tokens.valid
        clipped = is_clipped(logprobs, tokens.old, tokens.advantages, self.config.clip, self.config.clip_high)
        if bool(mask.any()):
            least, most = ratio_of(logprobs, tokens.old)[mask].aminmax()
            self._ratios = min(self._ratios[0], least.item()), max(self._ratios[1], most.item())
        added = {
            "tokens": mask.sum(),
            "clipped": (clipped & mask).sum(),
            "kl": (k3(logprobs, tokens.reference) * mask).sum(),
            "loss_grpo": loss.grpo,
            "loss_kl": loss.kl,
            "loss_opd": loss.opd,
            "loss": loss.total,
        }
        for name, value in added.items():
            sums[name] += value.item()

    def _stop_unless_finite(self, number: int) -> float:
        """Scale the gradient down to ``max_grad_norm`` and return its norm."""
        norm = torch.nn.utils.clip_grad_norm_(self._trained, self.config.max_grad_norm).item()
        if not isfinite(norm):
            raise TrainingError(
                f"the gradient became {norm} in update {number}, expected a finite number. The last checkpoint "
                "is kept: start again with a lower --lr and another --out"
            )
        return norm

    def _figures(self, sums: Sums) -> dict[str, float | None]:
        """Return means over all processes."""
        names = ("tokens", "clipped", "kl", "loss_grpo", "loss_kl", "loss_opd", "loss", "loss_correction")
        ranks = self.ranks
        values = [sums[name] for name in names]
        totals = torch.tensor(values, dtype=torch.float64, device=ranks.device)  # NCCL needs tensors on the GPU
        ranks.add([totals])
        total = dict(zip(names, totals.tolist(), strict=True))
        steps, tokens = max(1.0, sums["steps"]), max(1.0, total["tokens"])
        least, most = zip(*ranks.join({ranks.rank: self._ratios}).values(), strict=True)
        return {
            **{name: total[name] / steps for name in names[3:]},
            "kl": total["kl"] / tokens if self.config.kl > 0 else None,
            "clip_share": total["clipped"] / tokens,
            "ratio_min": min(least) if isfinite(min(least)) else None,
            "ratio_max": max(most) if isfinite(max(most)) else None,
            "grad_norm": sums["grad_norm"] / steps,
            "optimizer_steps": int(sums["steps"]),
        }
