"""The embedded targets, and targets that the user brings."""

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
from pivot.core.errors import ConfigError, GenerationError
from pivot.datasets.store.config import env_config
from pivot.environments.svg import sources
from pivot.environments.svg.environment import SvgConfig, SvgEnv
from pivot.environments.svg.icons import MOTIFS, draw_motif, draw_target
from pivot.environments.svg.sandbox.pool import Pool
from pivot.rollouts.plan import plan_tasks

GOLDEN = "9ad395f3abb52b46609270a2477ca214fb584c9ac1bb6f5507f517eed58531f1"
"""SHA-256 of the first hundred targets: task ids promise that it never changes without a new generator version."""


def icon(colour: str) -> str:
    circle = f'<circle cx="4" cy="4" r="3" fill="{colour}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9">{circle}</svg>'


def test_every_motif_can_be_drawn_in_every_style() -> None:
    assert len(MOTIFS) >= 50
    documents = [draw_motif(name, random.Random(seed)) for name in MOTIFS for seed in range(4)]
    with Pool(2) as pool:
        for document, raster in zip(documents, pool.draw_all(documents), strict=True):
            assert raster.pixels is not None, document


def test_the_target_of_a_seed_never_changes() -> None:
    state = hashlib.sha256()
    for seed in range(100):
        state.update(draw_target(random.Random(seed)).encode())
    assert state.hexdigest() == GOLDEN


# --- a folder ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    for name, colour in (("b", "red"), ("a", "green"), ("deep/c", "blue"), ("copy", "red")):
        (tmp_path / f"{name}.svg").write_text(icon(colour))
    (tmp_path / "broken.svg").write_text("<svg")
    (tmp_path / "blank.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"/>')
    (tmp_path / "empty.svg").write_text("")
    (tmp_path / "binary.svg").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "huge.svg").write_bytes(b" " * 600_000)
    (tmp_path / "other.txt").write_text(icon("black"))
    sources.load_source.cache_clear()
    return tmp_path


def targets_of(config: SvgConfig, count: int) -> set[str]:
    return {json.loads(task.initial_state)["target"] for task in plan_tasks(SvgEnv, config, 0, count)}


def test_a_folder_of_files_gives_targets(folder: Path) -> None:
    config = SvgConfig(targets=str(folder))
    assert targets_of(config, 3) == {icon("red"), icon("green"), icon("blue")}
    with pytest.raises(GenerationError):
        plan_tasks(SvgEnv, config, 0, 4)
    task = SvgEnv.make_task(config, 5)
    env = SvgEnv(config)
    frame, _ = env.reset(seed=task.seed)
    assert np.array_equal(frame, env.reset(options={"state": task.initial_state})[0])
    assert SvgConfig(targets=str(folder), max_tries=1).digest() != config.digest()


def test_ids_change_with_the_files(folder: Path) -> None:
    before = SvgConfig(targets=str(folder))
    assert before.digest() != SvgConfig().digest()
    (folder / "other.txt").unlink()
    sources.load_source.cache_clear()
    assert SvgConfig(targets=str(folder)).targets_digest == before.targets_digest
    (folder / "a.svg").rename(folder / "z.svg")  # another order
    sources.load_source.cache_clear()
    assert SvgConfig(targets=str(folder)).targets_digest != before.targets_digest
    (folder / "z.svg").write_text(icon("orange"))
    sources.load_source.cache_clear()
    after = SvgConfig(targets=str(folder))
    assert after.targets_digest != before.targets_digest
    assert after.digest() != before.digest()
    with pytest.raises(GenerationError, match="changed"):
        SvgEnv.make_task(before, 1)


def test_a_folder_is_known_by_its_documents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = SvgConfig(targets=str(folder))
    monkeypatch.chdir(folder.parent)
    assert SvgConfig(targets=folder.name) == here, "the working directory may change later"
    moved = folder.rename(folder.with_name("moved"))
    there = SvgConfig(targets=str(moved))
    assert there.targets != here.targets
    assert there.digest() == here.digest()
    assert "targets" not in there.decisive()


def test_a_folder_without_targets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.svg").write_text(" ")
    with pytest.raises(ConfigError, match=r"1 entries, none of them"):
        env_config("svg", {"targets": str(tmp_path)})
    (tmp_path / "blank.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    sources.load_source.cache_clear()
    with pytest.raises(GenerationError, match="too few documents"):
        SvgEnv.make_task(SvgConfig(targets=str(tmp_path), max_tries=5), 0)


# --- a dataset --------------------------------------------------------------------------------------------------------


def test_a_dataset_column_gives_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"Svg": text, "Filename": f"{k}.svg"} for k, text in enumerate((icon("red"), icon("blue"), "", None))]
    (data / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    config = SvgConfig(targets=f"hf:{data}:Svg")
    assert targets_of(config, 2) == {icon("red"), icon("blue")}
    with pytest.raises(ConfigError, match=r"no column 'svg'.*Svg, Filename"):
        env_config("svg", {"targets": f"hf:{data}:svg"})
