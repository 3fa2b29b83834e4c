"""An update encodes each prompt once, and each picture once if the vision encoder is not trained."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pivot.models.base import ChatRequest, image_ids

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.models.transformers.from_scratch import bpe_tokenizer, make_vlm  # noqa: E402
from pivot.training.encode import Encoder  # noqa: E402
from pivot.training.policy_rl import learner, loop  # noqa: E402
from pivot.training.policy_rl.config import make_rl_config  # noqa: E402
from pivot.training.policy_rl.generation import TrainedEngine  # noqa: E402
from pivot.training.policy_rl.scoring import PROMPT_CACHE_BYTES, Row, Scorer  # noqa: E402
from pivot.training.policy_rl.weights import ByteCache, VisionCache  # noqa: E402

pytestmark = pytest.mark.train


@pytest.mark.parametrize("lora", [True, False])
def test_an_update_of_navigation(lora: bool, player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, looks, shown = Counter[str](), list[int](), set[str]()
    rows, collages = list[Row](), Counter[str]()
    encode, scored, ask = Encoder.prompt, learner.score_turns, TrainedEngine._prompt

    def counted(self: Encoder, messages: Any, pictures: Any) -> Any:
        encoded[f"{messages}"] += 1
        return encode(self, messages, pictures)

    def score(turns: Any, *args: Any) -> Any:
        rows.extend(row for turn in turns for row in (turn.student, turn.teacher) if row is not None)
        shown.update(name for row in rows for name in image_ids(row.prompt.messages))
        return scored(turns, *args)

    def prompt(self: TrainedEngine, request: ChatRequest) -> Any:
        collages[f"{request.messages}"] += request.role == "analyzer"
        return ask(self, request)

    monkeypatch.setattr(TrainedEngine, "_prompt", prompt)
    monkeypatch.setattr(Encoder, "prompt", counted)
    monkeypatch.setattr(loop, "score_turns", score)
    sizes = {"levels": 4, "prompts": 1, "rollouts": 2, "updates": 1, "minibatch": 2, "generate": 4, "max_tokens": 4}
    fields = {"settings": {"horizon": 4}, "analyzer_tokens": 4, "validation_episodes": 0, "keep_rollouts": 0}
    named = {"env": "navigation", "model": str(player), "arm": "mp", "lora": lora, "lora_rank": 4}
    prepared = loop.prepare(make_rl_config(named | sizes | fields))
    look = prepared.model.model.get_image_features

    def looked(pixel_values: Any, image_grid_thw: Any = None, **more: Any) -> Any:
        looks.append(len(image_grid_thw))
        return look(pixel_values, image_grid_thw, **more)

    prepared.model.model.get_image_features = looked
    loop.train(prepared, tmp_path / "run")
    assert len(rows) >= 8 and any(len(image_ids(row.prompt.messages)) > 1 for row in rows)
    assert set((encoded - collages).values()) == {1}, "the Analyzer's are encoded for each request"
    assert len(encoded - collages) == len({row.prompt.prompt_hash for row in rows})
    if lora:
        assert sum(looks) == len(shown) + collages.total()
    else:
        assert sum(looks) > len(shown) + collages.total(), "generation, score and update encode with other weights"


def test_kept_pictures_change_neither_log_probabilities_nor_gradients(player: Path) -> None:
    """The tolerance, 2e-6 nats in float32, is that of other shapes of batches."""
    fields = {"levels": 4, "prompts": 1, "rollouts": 2, "keep_rollouts": 0, "lora": True, "lora_rank": 4}
    prepared = loop.prepare(make_rl_config({"env": "frozenlake", "model": str(player), **fields}))
    scorer, model = Scorer(prepared.encoder), prepared.model
    turns = loop.first_turns(prepared.levels, 3)
    for turn in turns:
        scorer.pictures |= turn.images
    rows = [
        Row(turn.prompt, tuple(prepared.encoder.reply_tokens("<think></think><action>up</action>"))) for turn in turns
    ]
    for each in model.parameters():  # adapters begin at zero
        if each.requires_grad:
            torch.nn.init.normal_(each, std=0.1)
    made = []
    for cache in (VisionCache(model, ByteCache(0)), VisionCache(model), None):
        with torch.no_grad():
            scorer(model, rows[:1], cache)
        model.zero_grad()
        values = scorer(model, rows, cache)
        values.sum().backward()
        made.append(
            (values.detach(), torch.cat([each.grad.flatten() for each in model.parameters() if each.requires_grad]))
        )
    for values, gradient in made[1:]:
        torch.testing.assert_close(values, made[0][0], atol=2e-6, rtol=0)
        torch.testing.assert_close(gradient, made[0][1], atol=1e-4, rtol=1e-4)


def test_the_prompts_of_an_update_of_navigation_fit_the_cache() -> None:
    """8 groups of 8 episodes of 25 turns, and a panel per failure, with the pictures of a Qwen2.5-VL."""
    _, processor = make_vlm(bpe_tokenizer(["a prompt"], 300), most_image_tokens=16384)
    encoder = Encoder(processor)

    def size(side: int) -> int:
        frame = Image.fromarray(np.zeros((side, side, 3), np.uint8))
        message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a prompt"}]}
        return sum(each.nbytes for each in encoder.prompt([message], [frame]).patches)

    assert 1600 * size(255) + 64 * 3 * size(280) + 2 * 1600 * 2000 * 48 < PROMPT_CACHE_BYTES
