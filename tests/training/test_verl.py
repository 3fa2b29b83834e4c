"""The losses of Stage II against those of verl 0.9.1, whose policy loss, KL and token mean the method's relatives use.

verl has an environment of its own (``make test WHAT=engines``); its losses need no accelerator.
"""

from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=engines")
algorithms: Any = pytest.importorskip("verl.trainer.ppo.core_algos", reason="needs verl; run: make test WHAT=engines")
verl_config: Any = pytest.importorskip("verl.workers.config")

from pivot.training.policy_rl.advantages import group_advantages  # noqa: E402
from pivot.training.policy_rl.losses import (  # noqa: E402
    TokenBatch,
    Weights,
    clipped_surrogate,
    is_clipped,
    k3,
    stage_two_loss,
)

pytestmark = pytest.mark.engines
PAPERS = Weights(clip=0.2, kl=0.01, opd=0.01, beta=5.0, opd_objective="printed")
EXACT = {"atol": 1e-12, "rtol": 1e-9}


def _config(**fields: Any) -> Any:
    return verl_config.ActorConfig(
        strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, **fields
    )


def _batch(seed: int, rows: int = 6, tokens: int = 30, drift: float = 0.3) -> dict[str, Any]:
    """Replies of very different lengths, as verl holds them: shape (rows, tokens), with a mask."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, tokens + 1, (rows,), generator=draw)
    logprobs = -torch.rand(rows, tokens, generator=draw, dtype=torch.float64) * 3
    return {
        "logprobs": logprobs.requires_grad_(),
        "old": logprobs.detach() + torch.randn(rows, tokens, generator=draw, dtype=torch.float64) * drift,
        "reference": logprobs.detach() + torch.randn(rows, tokens, generator=draw, dtype=torch.float64) * drift,
        "advantages": torch.randn(rows, 1, generator=draw, dtype=torch.float64).expand(rows, tokens),
        "mask": torch.arange(tokens)[None, :] < lengths[:, None],
    }


def _verls(batch: dict[str, Any], **config: Any) -> Any:
    loss, _ = algorithms.compute_policy_loss_vanilla(
        batch["old"],
        batch["logprobs"],
        batch["advantages"],
        batch["mask"],
        loss_agg_mode="token-mean",
        config=_config(**config),
    )
    return loss


def _ours(batch: dict[str, Any]) -> Any:
    """Our loss over the same tokens, which we hold in one row."""
    flat = {name: batch[name][batch["mask"]] for name in ("logprobs", "old", "reference", "advantages")}
    valid = torch.ones(len(flat["logprobs"]), dtype=torch.bool)
    logprobs = flat.pop("logprobs")
    tokens = TokenBatch(**flat, teacher=flat["old"], valid=valid, active=~valid)
    return stage_two_loss(logprobs, tokens, valid_count=len(valid), active_count=0, weights=PAPERS)


@pytest.mark.parametrize("drift", [0.3, 2.0, 20.0, 90.0])
@pytest.mark.parametrize("seed", range(10))
def test_the_policy_loss_and_its_gradient_are_verls(seed: int, drift: float) -> None:
    batch = _batch(seed, drift=drift)
    ours, verls = _ours(batch), _verls(batch, clip_ratio_c=1e9)
    torch.testing.assert_close(ours.grpo, verls, **EXACT)
    gradients = (torch.autograd.grad(loss, batch["logprobs"], retain_graph=True)[0] for loss in (ours.grpo, verls))
    torch.testing.assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("drift", [0.3, 2.0, 20.0, 90.0])
@pytest.mark.parametrize("seed", range(10))
def test_k3_is_verls_low_variance_kl_and_so_is_its_gradient(seed: int, drift: float) -> None:
    batch = _batch(seed, drift=drift)
    values = algorithms.kl_penalty(batch["logprobs"], batch["reference"], "low_var_kl")
    verls = algorithms.agg_loss(values, batch["mask"], "token-mean")
    torch.testing.assert_close(k3(batch["logprobs"], batch["reference"]), values, **EXACT)
    ours = _ours(batch).kl
    torch.testing.assert_close(ours, verls, **EXACT)
    gradients = (torch.autograd.grad(loss, batch["logprobs"], retain_graph=True)[0] for loss in (ours, verls))
    torch.testing.assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_of_a_batch_add_up_to_verls_token_mean(parts: int) -> None:
    """The sum over parts is compared, because replies differ in length and a mean of means would be wrong."""
    batch = _batch(7)
    whole = _verls(batch, clip_ratio_c=1e9)
    count = int(batch["mask"].sum())
    sums = []
    for rows in torch.arange(6).chunk(parts):
        part = {name: value[rows] for name, value in batch.items()}
        flat = {name: part[name][part["mask"]] for name in ("logprobs", "old", "advantages")}
        sums.append(clipped_surrogate(**flat, clip=0.2).sum() / count)
    torch.testing.assert_close(sum(sums), whole, **EXACT)
    if parts > 1:
        means = [
            _verls({name: value[rows] for name, value in batch.items()}, clip_ratio_c=1e9)
            for rows in torch.arange(6).chunk(parts)
        ]
        assert abs(float((sum(means) / parts - whole).detach())) > 1e-4


def test_verls_third_clip_is_the_one_difference() -> None:
    """verl also holds the loss of bad actions below 3 |A|, whose ratio ran away; the paper does not."""
    batch = _batch(3, drift=2.5)
    ours, theirs, dual = _ours(batch).grpo, _verls(batch, clip_ratio_c=1e9), _verls(batch, clip_ratio_c=3.0)
    torch.testing.assert_close(ours, theirs, **EXACT)
    ratio = (batch["logprobs"] - batch["old"]).exp()
    ran_away = (ratio > 3) & (batch["advantages"] < 0) & batch["mask"]
    assert int(ran_away.sum()) > 3
    assert float(dual.detach()) < float(theirs.detach())
    calm = batch | {"mask": batch["mask"] & ~ran_away}
    torch.testing.assert_close(_ours(calm).grpo, _verls(calm, clip_ratio_c=3.0), **EXACT)


def test_the_share_that_is_clipped_is_verls() -> None:
    batch = _batch(5, drift=0.6)
    _, metrics = algorithms.compute_policy_loss_vanilla(
        batch["old"], batch["logprobs"], batch["advantages"], batch["mask"], config=_config(clip_ratio_c=1e9)
    )
    clipped = is_clipped(batch["logprobs"], batch["old"], batch["advantages"], 0.2)[batch["mask"]]
    assert float(clipped.double().mean()) == pytest.approx(metrics["actor/pg_clipfrac"], abs=1e-6)


def test_advantages_are_verls_but_for_the_deviation() -> None:
    """verl divides by the sample deviation, the paper by that of the population."""
    returns = torch.tensor([1.0, 0.0, 0.0, 3.0, 0.5, 0.5, -1.0, 0.0], dtype=torch.float64)
    rewards = torch.zeros(8, 5, dtype=torch.float64)
    rewards[:, -1] = returns
    verls, _ = algorithms.compute_grpo_outcome_advantage(rewards, torch.ones(8, 5), np.zeros(8, int), epsilon=0.0)
    torch.testing.assert_close(group_advantages(returns, eps=0.0), verls[:, 0] * (8 / 7) ** 0.5, atol=1e-6, rtol=0)
