"""verl's own reward manager calls our function on decoded rollouts (``make test WHAT=integrations``)."""

import asyncio
from typing import Any

import numpy as np
import pytest
from pivot.interop.trainers.verl import compute_score, rows

verl: Any = pytest.importorskip("verl", reason="needs verl; run: make test WHAT=integrations")
torch: Any = pytest.importorskip("torch")
omegaconf: Any = pytest.importorskip("omegaconf")

from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager  # noqa: E402  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.reward import get_custom_reward_fn  # noqa: E402  # pyright: ignore[reportMissingImports]

FUNCTION = {"path": "pkg://pivot.interop.trainers.verl", "name": "compute_score"}
RESPONSE = "<think>x</think><action>right</action>\nYou see the lake.\n<action>down</action>"


class Letters:
    """A tokenizer of bytes."""

    def decode(self, ids: Any, *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return bytes(map(int, ids)).decode()


def test_the_reward_manager_finds_the_function_and_its_settings() -> None:
    settings = {"reward": {"custom_reward_function": {**FUNCTION, "reward_kwargs": {"credit_weight": 0.5}}}}
    config = omegaconf.OmegaConf.create(settings)
    scores = []
    for row in rows("frozenlake", 4):
        ids = torch.tensor([[*RESPONSE.encode()]])
        mask = torch.ones(1, ids.shape[1] + 4, dtype=torch.long)
        columns = {name: np.array([row[name]], object) for name in ("data_source", "reward_model", "extra_info")}
        data = verl.DataProto.from_dict({"responses": ids, "attention_mask": mask}, columns)

        async def scored(data: Any = data) -> dict[str, Any]:
            return await NaiveRewardManager(config, Letters(), get_custom_reward_fn(config)).run_single(data)

        result = asyncio.run(scored())
        level = row["reward_model"]["ground_truth"]
        expected = compute_score(row["data_source"], RESPONSE, level, credit_weight=0.5)
        assert (result["reward_score"], result["reward_extra_info"]) == (expected["score"], expected)
        scores.append(result["reward_score"])
    print(f"verl {verl.__version__}: {scores}")  # noqa: T201 - the version that was tried
    assert len(set(scores)) > 1
