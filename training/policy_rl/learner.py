"""One update of Stage II: score the turns of a batch, then step through shuffled minibatches of them.

Old, reference and Teacher log-probabilities are taken once before the first step; the gate follows the Student as it
changes, without a gradient. A minibatch's token counts are known before its first micro-batch, so micro-batches and
processes add up to the same gradient however they are cut.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, sqrt
from typing import Any

from ...errors import TrainingError
from ...identity import derive_seed
from ...models.extras import need
from ..encode import EXTRA
from ..tensors import TokenMask, TokenValues
from .config import RlConfig
from .losses import Loss, TokenBatch, Weights, gate, is_clipped, k3, stage_two_loss
from .scoring import LoadedTeacher, Scorer, Teacher, micro_batches, score_rows
from .sharding import WholeModel
from .turns import TurnSample, roc_area

torch: Any = need("torch", EXTRA)

COSINE_EVERY = 10
"""Updates between two measurements of the angle between the gradients of GRPO and of the distillation."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A turn with all that is known about its tokens before the first step; tensors of shape (tokens,), on the CPU."""

    turn: TurnSample
    valid: TokenMask
    active: TokenMask
    """Tokens that are distilled."""
    old: TokenValues
    reference: TokenValues
    teacher: TokenValues
    """Zeros where nothing is distilled."""

    @property
    def gap(self) -> TokenValues:
        """Teacher's log-probability minus the Student's, in nats."""
        return self.teacher - self.old

    def weightless(self) -> "Scored":
        """Return the same turn without a token that counts."""
        nothing = torch.zeros_like(self.valid)
        return replace(self, valid=nothing, active=nothing)


def token_batch(turns: Sequence[Scored], device: Any) -> TokenBatch:
    """Return the tokens of some turns, turn after turn, on a device."""

    def joined(values: Sequence[TokenValues | TokenMask]) -> TokenValues | TokenMask:
        return torch.cat(values).to(device)

    return TokenBatch(
        old=joined([each.old for each in turns]),
        reference=joined([each.reference for each in turns]),
        teacher=joined([each.teacher for each in turns]),
        advantages=joined([torch.full_like(each.old, each.turn.advantage) for each in turns]),
        valid=joined([each.valid for each in turns]),
        active=joined([each.active for each in turns]),
    )


def weights_of(config: RlConfig) -> Weights:
    """Return the weights of the terms of a run's loss."""
    return Weights(config.clip, config.kl, config.opd, config.beta, config.opd_objective)


def score_turns(
    turns: Sequence[TurnSample],
    scorer: Scorer,
    model: WholeModel,
    reference: WholeModel | None,
    config: RlConfig,
    frozen: Teacher | None = None,
) -> list[Scored]:
    """Score all turns of an update, each process its share of the micro-batches.

    Turns with and without a Teacher do not share a micro-batch, so that Student and Teacher are scored in one shape
    wherever their prompts are of one length. ``frozen`` is a Teacher of other weights; a turn that it cannot score is
    not distilled. Of sharded models only one is whole at a time.
    """
    model.model.eval()
    eye, ranks = model.eye(), model.ranks
    teaches = frozen or LoadedTeacher(scorer, eye)
    students = [turn.student for turn in turns]
    lengths = [
        max(scorer.length(turn.student), 0 if turn.teacher is None else teaches.length(turn.teacher)) for turn in turns
    ]
    batches = micro_batches(lengths, config.micro_batch_tokens, [turn.teacher is not None for turn in turns])
    mine = ranks.share(batches)
    taught = [turn.teacher or turn.student for turn in turns]
    teaching = [places for places in mine if turns[places[0]].teacher is not None]
    other = {} if reference is None else {"reference": reference.eye()}
    with model.whole():
        made = score_rows(scorer, {"old": eye} | ({} if model.sharded else other), students, mine)
        teacher = ranks.join(teaches.score(taught, teaching))
    if reference is not None and model.sharded:
        with reference.whole():
            made |= score_rows(scorer, other, students, mine)
    scored = {name: ranks.join(values) for name, values in made.items()}
    result = []
    for place, turn in enumerate(turns):
        old, valid = scored["old"][place], scorer.valid([turn.student])
        result.append(
            Scored(
                turn,
                valid=valid,
                active=valid if place in teacher else torch.zeros_like(valid),
                old=old,
                reference=scored["reference"][place] if reference is not None else old,
                teacher=teacher.get(place, torch.zeros_like(old)),
            )
        )
    return result


def hindsight_figures(scored: Sequence[Scored], beta: float) -> dict[str, float | None]:
    """Return what the Teacher makes of the failures: means of gap and gate, by kind of token, and a detector's area."""
    figures: dict[str, float | None] = {}
    kinds: dict[str, list[TokenValues]] = {"": [], "_pivot_action": [], "_other_action": [], "_thinking": []}
    detector: list[tuple[float, bool]] = []
    for each in scored:
        gap, turn = each.gap[each.active], each.turn
        if not len(gap):
            continue
        thinks = (torch.arange(len(each.active)) < turn.thinking)[each.active]
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
    return figures


@dataclass(slots=True)
class Sums:
    """What an update adds up over its tokens."""

    values: dict[str, float] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        """Add to the sums."""
        for name, value in values.items():
            self.values[name] = self.values.get(name, 0.0) + value


class Learner:
    """The trained model and its optimiser."""

    def __init__(self, model: WholeModel, scorer: Scorer, config: RlConfig) -> None:
        """Make a new optimiser for ``model``."""
        self.model, self.scorer, self.config = model, scorer, config
        self.optimizer = torch.optim.AdamW(model.trained(), lr=config.lr, weight_decay=config.weight_decay)

    def update(self, scored: Sequence[Scored], number: int) -> dict[str, float | None]:
        """Take the optimiser steps of update ``number``; return what was measured on the way.

        Raises:
            TrainingError: a loss or gradient is no number; the weights are then those of the last whole step.
        """
        config, sums = self.config, Sums()
        order = list(range(len(scored)))
        random.Random(derive_seed("minibatches", config.seed, number)).shuffle(order)
        cosine = None
        self.model.train(config.gradient_checkpointing)
        for first in range(0, len(order), config.minibatch):
            chosen = [scored[place] for place in order[first : first + config.minibatch]]
            if first == 0 and number % COSINE_EVERY == 0:
                cosine = self._cosine(chosen)
            self.optimizer.zero_grad(set_to_none=True)
            self._accumulate(chosen, sums)
            norm = self._stop_unless_finite(number)
            self.optimizer.step()
            sums.add(steps=1, grad_norm=norm)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.train(False)
        return self._figures(sums) | {"gradient_cosine": cosine}

    def _accumulate(self, chosen: Sequence[Scored], sums: Sums, term: str = "total") -> None:
        """Add the gradient of one term of a minibatch's loss, over all processes."""
        valid = sum(int(each.valid.sum()) for each in chosen)
        active = sum(int(each.active.sum()) for each in chosen)
        lengths = [self.scorer.length(each.turn.student) for each in chosen]
        batches = micro_batches(lengths, self.config.micro_batch_tokens)
        parts = [[chosen[place] for place in places] for places in batches]
        for part in self.model.share(parts, filler=[parts[0][0].weightless()]):
            logprobs = self._forward(part)
            tokens = token_batch(part, logprobs.device)
            loss = self._loss(logprobs, tokens, valid, active)
            getattr(loss, term).backward()
            self._count(sums, logprobs.detach(), tokens, loss)
        self.model.sum_gradients()

    def _forward(self, part: Sequence[Scored]) -> TokenValues:
        rows = [each.turn.student for each in part]
        return self.model.forward(lambda model: self.scorer(model, rows))

    def _loss(self, logprobs: TokenValues, tokens: TokenBatch, valid: int, active: int) -> Loss:
        return stage_two_loss(logprobs, tokens, valid_count=valid, active_count=active, weights=weights_of(self.config))

    def _count(self, sums: Sums, logprobs: TokenValues, tokens: TokenBatch, loss: Loss) -> None:
        mask = tokens.valid
        clipped = is_clipped(logprobs, tokens.old, tokens.advantages, self.config.clip)
        sums.add(
            tokens=int(mask.sum()),
            clipped=int((clipped & mask).sum()),
            kl=(k3(logprobs, tokens.reference) * mask).sum().item(),
            loss_grpo=loss.grpo.item(),
            loss_kl=loss.kl.item(),
            loss_opd=loss.opd.item(),
            loss=loss.total.item(),
        )

    def _stop_unless_finite(self, number: int) -> float:
        """Scale the gradient down and return its norm."""
        norm = self.model.clip(self.config.max_grad_norm)
        if not isfinite(norm):
            raise TrainingError(
                f"the gradient became {norm} in update {number}, expected a finite number. The last checkpoint "
                "is kept: lower --lr, then run again with --resume or another --out"
            )
        return norm

    def _cosine(self, chosen: Sequence[Scored]) -> float | None:
        """Return the cosine between the gradients of GRPO and distillation; None where one of them is zero."""
        directions = []
        for term in ("grpo", "opd"):
            self.optimizer.zero_grad(set_to_none=True)
            self._accumulate(chosen, Sums(), term)
            directions.append(self.model.gradient())
        first, second = directions
        products = torch.stack([first @ second, first @ first, second @ second])
        both, one, other = self.model.total(products).tolist()
        return both / sqrt(one) / sqrt(other) if one > 0 and other > 0 else None

    def _figures(self, sums: Sums) -> dict[str, float | None]:
        """Return means over all processes."""
        names = ("tokens", "clipped", "kl", "loss_grpo", "loss_kl", "loss_opd", "loss")
        ranks = self.model.ranks
        values = [sums.values.get(name, 0.0) for name in names]
        totals = torch.tensor(values, dtype=torch.float64, device=ranks.device)  # NCCL adds up nothing on a CPU
        ranks.add([totals])
        total = dict(zip(names, totals.tolist(), strict=True))
        steps, tokens = max(1.0, sums.values.get("steps", 0.0)), max(1.0, total["tokens"])
        return {
            **{name: total[name] / steps for name in names[3:]},
            "kl": total["kl"] / tokens,
            "clip_share": total["clipped"] / tokens,
            "grad_norm": sums.values.get("grad_norm", 0.0) / steps,
            "optimizer_steps": int(sums.values.get("steps", 0)),
        }
