"""Runs of Stage II with adapters: the trained weights, the reference, and the saved files."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from pivot.core.storage.local import LocalStorage
from pivot.tests.training.lake import lines_of, save_grammatical, short, torch, weights_in
from pivot.training.loading import add_adapters, load_adapters, load_weights, merged, without_adapters
from pivot.training.policy_rl import loop

pytestmark = pytest.mark.train
pytest.importorskip("peft")
IDS = torch.arange(20)[None]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A player that answers with an action."""
    return save_grammatical(tmp_path_factory.mktemp("start"))


def _config(start: Path, **fields: Any) -> Any:
    return short(start, **({"lora": True, "lora_rank": 4, "lr": 1e-2, "prompts": 2, "save_every": 1} | fields))


def _scores(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


def test_weights_with_without_and_merged(start: Path, tmp_path: Path) -> None:
    model, _ = load_weights(str(start), None, torch.float32)
    plain = _scores(deepcopy(model))
    add_adapters(model, rank=4, alpha=8, seed=0)
    trained = [each for each in model.parameters() if each.requires_grad]
    assert trained and torch.equal(_scores(model), plain), "new adapters change nothing"
    with torch.no_grad():
        for each in trained:
            each.add_(0.05 * torch.randn_like(each))
    moved = _scores(model)
    assert (moved - plain).abs().max() > 0.1
    with without_adapters(model):
        assert torch.equal(_scores(model), plain)
    assert torch.equal(_scores(model), moved) and all(each.requires_grad for each in trained)
    assert (_scores(merged(model, str(start), None)) - moved).abs().max() < 1e-4
    model.save_pretrained(tmp_path)
    again, _ = load_weights(str(start), None, torch.float32)
    add_adapters(again, rank=4, alpha=8, seed=1)
    load_adapters(again, tmp_path)
    assert torch.equal(_scores(again), moved)


def test_equal_seeds_give_equal_adapters_and_frozen_weights_may_be_half(start: Path) -> None:
    models = [load_weights(str(start), None, torch.bfloat16)[0] for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        add_adapters(model, rank=4, alpha=8, seed=seed)
    values = [torch.cat([each.flatten() for each in model.parameters() if each.requires_grad]) for model in models]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])
    kinds = {(each.requires_grad, each.dtype) for each in models[0].parameters()}
    assert kinds == {(True, torch.float32), (False, torch.bfloat16)}


def test_a_run_trains_adapters_alone_and_goes_on_where_it_was(start: Path, tmp_path: Path) -> None:
    loop.train(loop.prepare(_config(start)), tmp_path / "whole")
    loop.train(loop.prepare(_config(start, updates=1)), tmp_path / "cut")
    LocalStorage(tmp_path / "cut").delete("final")
    loop.train(loop.prepare(_config(start)), tmp_path / "cut", resume=True)
    assert lines_of(tmp_path / "cut") == lines_of(tmp_path / "whole")
    first, last = lines_of(tmp_path / "whole")
    assert first["grad_norm"] > 0 and last["kl"] > 0, "the reference is the model without its adapters"
    before, whole, cut = (weights_in(folder) for folder in (start, tmp_path / "whole/final", tmp_path / "cut/final"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    changed = {name for name in before if not torch.equal(before[name], whole[name])}
    assert changed and all("_proj" in name and "visual" not in name for name in changed)
    kept = LocalStorage(tmp_path / "whole").listing("checkpoints/checkpoint-2")
    adapters = next(stat.bytes for name, stat in kept.items() if name.endswith("adapter_model.safetensors"))
    assert adapters < (start / "model.safetensors").stat().st_size / 2
    assert not any(name.endswith("/model.safetensors") for name in kept)


def test_in_bfloat16_adapters_learn_over_half_weights(start: Path, tmp_path: Path) -> None:
    config = _config(start, precision="bf16", updates=1, arm="empty")
    prepared = loop.prepare(config)
    loop.train(prepared, tmp_path)
    (line,) = lines_of(tmp_path)
    assert line["grad_norm"] > 0 and line["generator_difference"] < 0.05 and line["opd_gap"] == 0
    assert {each.dtype for each in weights_in(tmp_path / "final").values()} == {torch.float32}
