"""The losses of Stage II against references in float64, against TRL, and on a task whose gradient is known exactly."""

import math
from functools import partial
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.training.policy_rl import losses  # noqa: E402
from pivot.training.policy_rl.advantages import group_advantages  # noqa: E402
from pivot.training.policy_rl.losses import (  # noqa: E402
    TokenBatch,
    Weights,
    clipped_surrogate,
    distribution_opd,
    k3,
    preference_loss,
    printed_opd,
    stage_two_loss,
    witness_loss,
)

pytestmark = pytest.mark.train


def _weights(kl: float = 0.01, opd: float = 0.01) -> Weights:
    return Weights(clip=0.2, kl=kl, opd=opd)


def _batch(seed: int, tokens: int = 40) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)

    def some(scale: float = 1.0) -> Any:
        return torch.randn(tokens, generator=draw, dtype=torch.float64) * scale

    student = -some().abs()
    valid = torch.rand(tokens, generator=draw) < 0.8
    active = valid & (torch.rand(tokens, generator=draw) < 0.5)
    return {
        "logprobs": student,
        "old": student + some(0.2),
        "reference": student + some(0.3),
        "teacher": (student + some(0.5)).where(active, torch.nan),  # others are never scored by the Teacher
        "advantages": some(),
        "valid": valid,
        "active": active,
    }


def _loss(batch: dict[str, Any], weights: Weights, logprobs: Any, distil: Any = printed_opd, **counts: Any) -> Any:
    counts = {"valid_count": int(batch["valid"].sum()), "active_count": int(batch["active"].sum())} | counts
    tokens = TokenBatch(**{name: each for name, each in batch.items() if name != "logprobs"})
    return stage_two_loss(logprobs, tokens, **counts, weights=weights, distil=partial(distil, beta=5.0))


@pytest.mark.parametrize("value", [0.0, -0.9, 9.7])
def test_equal_returns_give_advantages_of_exactly_zero(value: float) -> None:
    for dtype in (torch.float32, torch.float64):
        returns = torch.full((8,), value, dtype=dtype)
        returns[3] += 1e-9  # rounding of a sum of rewards
        assert group_advantages(returns).tolist() == [0.0] * 8


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("objective", ["printed", "centred", "gap"])
def test_value_and_gradient_equal_a_reference_that_loops_over_tokens(seed: int, objective: Any) -> None:
    batch, weights = _batch(seed), _weights(kl=0.3, opd=0.7)
    total, gradient = 0.0, torch.zeros_like(batch["logprobs"])
    valid, active = int(batch["valid"].sum()), int(batch["active"].sum())
    rows = zip(*(each.tolist() for each in batch.values()), strict=True)
    for place, (student, old, reference, teacher, advantage, is_valid, is_active) in enumerate(rows):
        if is_valid:
            ratio = 2.718281828459045 ** (student - old)
            inside = 0.8 < ratio < 1.2
            clamped = min(max(ratio, 0.8), 1.2)
            total -= min(ratio * advantage, clamped * advantage) / valid
            if inside or ratio * advantage < clamped * advantage:
                gradient[place] -= ratio * advantage / valid
            distance = reference - student
            total += weights.kl * (2.718281828459045**distance - distance - 1) / valid
            gradient[place] += weights.kl * (1 - 2.718281828459045**distance) / valid
        if is_active:
            g = 1 / (1 + 2.718281828459045 ** (-5 * (teacher - student)))
            factor = {"printed": g, "centred": g - 0.5, "gap": teacher - student}[objective]
            total += weights.opd * factor * ((-student) if objective == "gap" else (teacher - student)) / active
            gradient[place] -= weights.opd * factor / active
    logprobs = batch["logprobs"].clone().requires_grad_()
    loss = _loss(batch, weights, logprobs, getattr(losses, f"{objective}_opd"))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(total, abs=1e-6)
    torch.testing.assert_close(logprobs.grad, gradient, atol=1e-6, rtol=0)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_distribution_is_distilled_as_a_reference_that_loops_over_tokens_says(count: int) -> None:
    """Loss and gradient with respect to the logits, by finite differences; of the whole vocabulary it is KL."""
    draw = torch.Generator().manual_seed(count)
    logits, others = (torch.randn(12, 7, generator=draw, dtype=torch.float64) for _ in range(2))
    teacher, active = others.log_softmax(-1), torch.rand(12, generator=draw) < 0.6
    tops, ids = teacher.topk(count, dim=-1)
    nothing = torch.zeros(12, dtype=torch.float64)

    def loss(values: Any) -> Any:
        own = values.log_softmax(-1)
        tokens = TokenBatch(nothing, nothing, nothing, nothing, active | True, active, ids, tops, own.gather(1, ids))
        weights, distil = _weights(kl=0.0, opd=0.7), partial(distribution_opd, beta=5.0)
        counts = {"valid_count": 12, "active_count": int(active.sum())}
        return stage_two_loss(own[:, 0], tokens, **counts, weights=weights, distil=distil).opd

    expected = 0.0
    for row in active.nonzero().flatten().tolist():
        own, wise = logits[row].softmax(-1).tolist(), teacher[row].exp().tolist()
        chosen = ids[row].tolist()
        expected += sum(wise[each] * math.log(wise[each] / own[each]) for each in chosen)
        if count < 7:
            rest, own_rest = 1 - sum(wise[each] for each in chosen), 1 - sum(own[each] for each in chosen)
            expected += rest * math.log(rest / own_rest)
    variable = logits.clone().requires_grad_()
    result = loss(variable)
    assert result.item() == pytest.approx(expected / int(active.sum()), abs=1e-12)
    result.backward()
    numeric = torch.zeros_like(logits)
    for place in range(logits.numel()):
        step = torch.zeros(logits.numel(), dtype=torch.float64)
        step[place] = 1e-6
        step = step.view_as(logits)
        numeric.view(-1)[place] = (loss(logits + step) - loss(logits - step)) / 2e-6
    torch.testing.assert_close(variable.grad, numeric, atol=1e-8, rtol=0)
    assert bool((variable.grad[~active] == 0).all())


def test_corrections_equal_references_in_float64() -> None:
    draw = torch.Generator().manual_seed(3)
    tokens = (-torch.rand(9, generator=draw, dtype=torch.float64)).requires_grad_()
    loss = witness_loss(tokens[:4], 9) + witness_loss(tokens[4:], 9)
    loss.backward()
    assert loss.item() == pytest.approx(-sum(tokens.tolist()) / 9, abs=1e-15)
    torch.testing.assert_close(tokens.grad, torch.full((9,), -1 / 9, dtype=torch.float64), atol=1e-15, rtol=0)
    chosen, rejected = (torch.randn(5, generator=draw, dtype=torch.float64).mul(30).requires_grad_() for _ in range(2))
    pairs = preference_loss(chosen, rejected, 0.3, 5)
    pairs.backward()
    margins = [0.3 * (one - two) for one, two in zip(chosen.tolist(), rejected.tolist(), strict=True)]
    assert pairs.item() == pytest.approx(sum(math.log1p(math.exp(-each)) for each in margins) / 5, abs=1e-12)
    slope = torch.tensor([-0.3 / 5 / (1 + math.exp(each)) for each in margins], dtype=torch.float64)
    torch.testing.assert_close(chosen.grad, slope, atol=1e-12, rtol=0)
    torch.testing.assert_close(rejected.grad, -slope, atol=1e-12, rtol=0)
    extreme = torch.tensor([-1e4, 1e4], dtype=torch.float64, requires_grad=True)
    preference_loss(extreme, extreme.detach() * 0, 1.0, 2).backward()
    assert bool(extreme.grad.isfinite().all())


@pytest.mark.parametrize("drift", [0.3, 2.0, 20.0, 90.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_ratios_are_bounded_as_in_verl(drift: float, dtype: Any) -> None:
    """Written after ``kl_penalty`` ("low_var_kl") and ``compute_policy_loss_vanilla`` of verl 0.9.1."""
    draw = torch.Generator().manual_seed(11)
    student = (-torch.rand(200, generator=draw) * 3).to(dtype)
    other = student + drift * torch.randn(200, generator=draw).to(dtype)
    advantages = torch.randn(200, generator=draw).to(dtype)
    difference = (other - student).clamp(-20, 20)
    expected = (difference.exp() - difference - 1).clamp(-10, 10)
    logprobs = student.clone().requires_grad_()
    values, surrogate = k3(logprobs, other), clipped_surrogate(logprobs, other, advantages, 0.2)
    torch.testing.assert_close(values.detach(), expected, rtol=1e-6, atol=1e-6)
    ratio = (student - other).clamp(-20, 20).exp()
    clipped = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    torch.testing.assert_close(surrogate.detach(), clipped, rtol=1e-6, atol=1e-6)
    (values.sum() + surrogate.sum()).backward()
    assert bool(torch.isfinite(logprobs.grad).all())
    assert values.max().item() <= 10
    if drift < 1:
        exact = (other - student).exp() - (other - student) - 1
        torch.testing.assert_close(values.detach(), exact, rtol=0, atol=0)
