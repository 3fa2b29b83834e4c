"""Scores of reconstructions: the embedded scorer's promises, and the perceptual one with models of its real kind."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from time import sleep
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.core.admission import allowing
from pivot.core.errors import ConfigError
from pivot.environments.base import Frame
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.icons import draw_target
from pivot.environments.svg.sandbox.pool import rasterise
from pivot.environments.svg.scorers import SCORERS, load_scorer, scorer_version
from pivot.environments.svg.scorers.pixel import WEIGHTS, PixelScorer, _similarity, _View
from pivot.tests.flow_runs import PATIENCE

PIXEL = PixelScorer()
STEPS = 6


def target(seed: int) -> Frame:
    pixels = rasterise(draw_target(random.Random(seed))).pixels
    assert pixels is not None
    return pixels


def pixel(one: Frame, other: Frame) -> float:
    return PIXEL.score(one, [other])[0].average


# --- the embedded scorer ----------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_a_picture_is_like_itself_and_no_other_is(seed: int) -> None:
    picture = target(seed)
    score = PIXEL.score(picture, [picture.copy()])[0]
    assert score.average == 1.0
    assert dict(score.parts) == dict.fromkeys(WEIGHTS, 1.0)
    rng = random.Random(seed)
    changed = picture.copy()
    changed[rng.randrange(256), rng.randrange(256), rng.randrange(3)] ^= 1 << rng.randrange(8)
    assert pixel(picture, changed) < 1.0


def blend(picture: Frame, step: int, seed: int) -> Frame:
    """Mix more and more of another picture in."""
    share = step / STEPS
    return np.rint((1 - share) * picture + share * target(seed + 1).astype(float)).astype(np.uint8)


def blur(picture: Frame, step: int, seed: int) -> Frame:
    return np.asarray(cv2.GaussianBlur(picture, (0, 0), 0.8 * 1.7**step), np.uint8) if step else picture


def holes(picture: Frame, step: int, seed: int) -> Frame:
    """Replace more and more tiles by noise; each set of tiles contains the ones before."""
    rng = np.random.default_rng(seed)
    static = rng.integers(0, 256, picture.shape, np.uint8)
    damaged = picture.copy()
    for tile in rng.permutation(64)[: 10 * step]:
        y, x = (32 * int(k) for k in divmod(tile, 8))
        damaged[y : y + 32, x : x + 32] = static[y : y + 32, x : x + 32]
    return damaged


@pytest.mark.parametrize("corrupt", [blend, blur, holes])
def test_scores_fall_as_corruption_grows(corrupt: Callable[[Frame, int, int], Frame]) -> None:
    for seed in range(12):
        picture = target(seed)
        scores = [pixel(picture, corrupt(picture, step, seed)) for step in range(STEPS + 1)]
        assert scores[0] == 1.0
        assert all(later <= earlier for earlier, later in pairwise(scores)), scores
        assert scores[-1] < 0.75, scores


TARGETS = range(16)


def rectangle(picture: Frame, box: Any, colour: Any) -> Frame:
    canvas = np.full_like(picture, 255)
    top, bottom, left, right = box
    canvas[top:bottom, left:right] = colour
    return canvas


def test_what_anybody_can_draw_is_worth_little() -> None:
    """A blank canvas nothing, a rectangle at most 0.2: around the whole or parts of it, in colours that suggest it."""
    for seed in TARGETS:
        picture = target(seed)
        assert pixel(picture, np.full_like(picture, 255)) == 0.0
        shown: Any = (picture < 255).any(axis=2)
        rows, columns = np.flatnonzero(shown.any(axis=1)), np.flatnonzero(shown.any(axis=0))
        top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
        middle = (top + bottom) // 2
        boxes = [
            (top, bottom, left, right),
            (top, middle, left, right),
            (middle, bottom, left, right),
            (0, 256, 0, 256),
        ]
        boxes += [(top + k, bottom - k, left + k, right - k) for k in (15, 30, 50)]
        for box in boxes:
            inside = picture[box[0] : box[1], box[2] : box[3]].reshape(-1, 3)
            for colour in (inside.mean(axis=0), np.median(inside, axis=0), picture[shown].mean(axis=0), (0, 0, 0)):
                assert pixel(picture, rectangle(picture, box, colour)) <= 0.2, (seed, box)


def test_a_rectangle_is_worth_something_where_the_target_is_one() -> None:
    picture = rectangle(np.zeros((256, 256, 3), np.uint8), (40, 200, 60, 220), (200, 30, 30))
    assert pixel(picture, rectangle(picture, (41, 200, 60, 221), (205, 30, 30))) > 0.9
    assert 0.2 < pixel(picture, rectangle(picture, (45, 190, 60, 220), (180, 60, 30))) < 0.95
    assert pixel(picture, np.full_like(picture, 255)) == 0.0


def test_near_copies_keep_their_score() -> None:
    for seed in TARGETS:
        picture = target(seed)
        wider = np.pad(picture, ((1, 1), (1, 1), (0, 0)), constant_values=255)
        moved = [wider[y : y + 256, x : x + 256] for y in range(3) for x in range(3)]
        tint = np.array([8, -8, 8]) * (picture < 255).any(axis=2, keepdims=True)
        tinted = np.clip(picture + tint, 0, 255).astype(np.uint8)
        soft = np.asarray(cv2.GaussianBlur(picture, (0, 0), 0.6), np.uint8)
        for near in (*moved, tinted, soft):
            assert pixel(picture, near) > 0.9, seed


def test_structure_is_structural_similarity() -> None:
    """Compare with scikit-image; its border handling differs from OpenCV's."""
    metrics = pytest.importorskip("skimage.metrics", reason="compares with scikit-image (pip install scikit-image)")
    for seed in range(3):
        one, other = (cv2.cvtColor(target(k), cv2.COLOR_RGB2GRAY).astype(np.float32) for k in (seed, seed + 20))
        _, expected = metrics.structural_similarity(
            one, other, data_range=255, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, full=True
        )
        np.testing.assert_allclose(
            _similarity(_View.of(one), _View.of(other))[8:-8, 8:-8], expected[8:-8, 8:-8], atol=2e-3
        )


# --- names ------------------------------------------------------------------------------------------------------------


def test_scorers_are_part_of_the_ids() -> None:
    assert [scorer_version(name) for name in SCORERS] == ["2", "1"]
    assert SvgConfig().digest() != SvgConfig(scorer="dino+dreamsim").digest()
    assert SvgConfig().model_dump()["scorer_version"] == PixelScorer.version
    assert load_scorer("pixel") is load_scorer("pixel")
    for ask in (scorer_version, load_scorer):
        with pytest.raises(ConfigError, match=r"'clip'.*pixel, dino\+dreamsim"):
            ask("clip")


# --- the perceptual scorer --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="the perceptual scorer needs the [perceptual] extra")


@pytest.fixture(scope="module")
def checkpoint(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a DINOv2 of the real architecture with few, random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=70, patch_size=14
    )
    folder = tmp_path_factory.mktemp("dinov2")
    transformers.Dinov2Model(config).save_pretrained(folder)
    settings = {
        "image_processor_type": "BitImageProcessor",
        "size": {"shortest_edge": 80},
        "crop_size": {"height": 70, "width": 70},
        "do_resize": True,
        "do_center_crop": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def dreamsim_stand_in(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Put a module with the interface of the dreamsim package, but a trivial embedding, in its place.

    The package imports torchvision, which the CPU builds used in tests lack; so this proves how it is called, batched
    and mapped to a score, not what DreamSim itself computes.
    """
    seen: dict[str, Any] = {"batches": []}

    def preprocess(picture: Any) -> Any:
        assert (picture.mode, picture.size) == ("RGB", (256, 256))
        return torch.from_numpy(np.asarray(picture.resize((224, 224)), np.float32).transpose(2, 0, 1)[None] / 255)

    class Model:
        """Embeds a picture as a direction in the plane that its brightness turns."""

        def embed(self, pictures: Any) -> Any:
            assert pictures.shape[1:] == (3, 224, 224)
            assert not torch.is_grad_enabled()
            seen["batches"].append(len(pictures))
            sleep(seen.get("seconds", 0))
            angle = 2 * pictures.mean(dim=(1, 2, 3))
            return 5 * torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)

    def dreamsim(**options: Any) -> tuple[Any, Any]:
        seen["options"] = options
        seen["loads"] = seen.get("loads", 0) + 1
        return Model(), preprocess

    module = ModuleType("dreamsim")
    module.dreamsim = dreamsim  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "dreamsim", module)
    yield seen


def test_dino_is_the_cosine_of_mean_tokens(torch: Any, checkpoint: Path, dreamsim_stand_in: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    from PIL import Image
    from pivot.environments.svg.scorers.perceptual import PerceptualScorer

    canvases = [target(seed) for seed in range(3)]
    scorer = PerceptualScorer(dino_model=str(checkpoint), device="cpu")
    scores = scorer.score(canvases[0], canvases)

    model = transformers.Dinov2Model.from_pretrained(checkpoint).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(checkpoint)

    def feature(picture: Frame) -> Any:
        pixels = processor(images=Image.fromarray(picture), return_tensors="pt")["pixel_values"]
        assert pixels.shape == (1, 3, 70, 70)
        with torch.no_grad():
            tokens = model(pixels).last_hidden_state
        assert tokens.shape == (1, 1 + 25, 24)
        return tokens[0].mean(dim=0)

    for canvas, score in zip(canvases, scores, strict=True):
        cosine = torch.nn.functional.cosine_similarity(feature(canvases[0]), feature(canvas), dim=0).item()
        assert score.parts["dino"] == pytest.approx((cosine + 1) / 2, abs=2e-6)
        assert score.average == pytest.approx((score.parts["dino"] + score.parts["dreamsim"]) / 2, abs=1e-6)
    assert scores[0].average == 1.0
    assert dict(scores[0].parts) == {"dino": 1.0, "dreamsim": 1.0}
    assert scores[1].parts["dino"] < 1


def test_dreamsim_is_one_minus_the_distance(checkpoint: Path, dreamsim_stand_in: dict[str, Any]) -> None:
    from pivot.environments.svg.scorers import perceptual

    black, white = np.zeros((256, 256, 3), np.uint8), np.full((256, 256, 3), 255, np.uint8)
    grey = np.full((256, 256, 3), 230, np.uint8)
    scorer = perceptual.PerceptualScorer(str(checkpoint), "dino_vitb16", str(checkpoint), device="cpu")
    scores = scorer.score(white, [grey, black, white])
    expected = {"pretrained": True, "device": "cpu", "cache_dir": str(checkpoint), "dreamsim_type": "dino_vitb16"}
    assert dreamsim_stand_in["options"] == expected
    assert scores[0].parts["dreamsim"] == pytest.approx(np.cos(2 * 25 / 255), abs=1e-5)
    assert scores[1].parts["dreamsim"] == 0.0, "a distance above one is cut"
    assert scores[2].parts["dreamsim"] == 1.0


def test_large_batches_are_split_and_nothing_is_embedded_twice(
    checkpoint: Path, dreamsim_stand_in: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pivot.environments.svg.scorers import perceptual

    canvases = [target(seed) for seed in range(5)]
    scorer = perceptual.PerceptualScorer(str(checkpoint), device="cpu")
    whole = scorer.score(canvases[0], canvases)
    assert scorer.score(canvases[1], canvases[::-1])[3].average == 1
    assert dreamsim_stand_in["batches"] == [5]
    monkeypatch.setattr(perceptual, "BATCH", 2)
    monkeypatch.setattr(perceptual, "KEPT", 4)
    split = perceptual.PerceptualScorer(str(checkpoint), device="cpu").score(canvases[0], canvases)
    assert dreamsim_stand_in["batches"] == [5, 2, 2, 1]
    for one, other in zip(whole, split, strict=True):
        assert one.average == pytest.approx(other.average, abs=2e-6)
    assert scorer.score(canvases[0], []) == []


def test_threads_share_embeddings_and_the_models(checkpoint: Path, dreamsim_stand_in: dict[str, Any]) -> None:
    from pivot.environments.svg.scorers.perceptual import PerceptualScorer

    pictures = [target(seed) for seed in range(8)]
    scorer = PerceptualScorer(str(checkpoint), device="cpu")
    alone = [PerceptualScorer(str(checkpoint), device="cpu").score(pictures[0], [each])[0] for each in pictures]
    dreamsim_stand_in.update(batches=[], loads=0)
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda each: scorer.score(pictures[0], [each])[0], pictures))
    assert dreamsim_stand_in["loads"] == 1
    assert sum(dreamsim_stand_in["batches"]) == 8, "the target once, every canvas once"
    for one, other in zip(alone, together, strict=True):
        assert one.average == pytest.approx(other.average, abs=2e-6)


def test_one_process_at_a_time_loads_the_weights(
    checkpoint: Path, dreamsim_stand_in: dict[str, Any], tmp_path: Path
) -> None:
    """The test holds the lock in place of another process: a lock on a file does not distinguish processes."""
    from pivot.environments.svg.scorers import perceptual

    folder = tmp_path / "new" / "weights"
    scorer = perceptual.PerceptualScorer(str(checkpoint), dreamsim_weights=str(folder), device="cpu")
    with ThreadPoolExecutor(1) as threads:
        with perceptual._one_at_a_time(folder):
            loading = threads.submit(scorer.check)
            with pytest.raises(TimeoutError):
                loading.result(timeout=0.5)
            assert "options" not in dreamsim_stand_in
        loading.result(timeout=PATIENCE)
    assert dreamsim_stand_in["options"]["cache_dir"] == str(folder)


def test_an_unusable_scorer_is_found_before_planning(tmp_path: Path) -> None:
    with allowing([str(tmp_path)]), pytest.raises(ConfigError, match=r"svg\.dino_model|package torch"):
        SvgEnv.check_ready(SvgConfig(scorer="dino+dreamsim", dino_model=str(tmp_path)))
    SvgEnv.check_ready(SvgConfig())


def test_the_environment_uses_it(checkpoint: Path, dreamsim_stand_in: dict[str, Any]) -> None:
    env = SvgEnv(SvgConfig(scorer="dino+dreamsim", dino_model=str(checkpoint)))
    with allowing([str(checkpoint)]):
        env.reset(seed=0)
        _, _, _, _, info = env.step(draw_target(random.Random(1)))
    parts = json.loads(info["score_parts"])
    assert set(parts) == {"dino", "dreamsim"}
    assert info["average_score"] == pytest.approx(sum(parts.values()) / 2, abs=1e-6)
    state = json.loads(env.state_text())
    assert state["scores"]["parts"] == parts


def test_what_is_missing_is_named(checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pivot.environments.svg.scorers.perceptual import PerceptualScorer

    picture = target(0)
    with pytest.raises(ConfigError, match=r"svg\.dino_model"):
        PerceptualScorer(str(tmp_path / "nothing")).score(picture, [picture])
    monkeypatch.setitem(sys.modules, "dreamsim", None)
    with pytest.raises(ConfigError, match=r"package dreamsim.*\[perceptual\]"):
        PerceptualScorer(str(checkpoint)).score(picture, [picture])
