"""The benchmark with a gymnasium environment: its levels, its figures, its fingerprint, and what is refused."""

import shutil
from pathlib import Path

import pytest
from pivot.core.errors import PluginError
from pivot.core.images import decode, encode_png
from pivot.flows.training import make_benchmark
from pivot.tests.cli.command_line import error_of
from pivot.tests.training.benchmark_oracle import figures, fingerprint_of
from pivot.tests.training.conftest import LAVA
from pivot.tests.training.stand_ins import Oracle
from pivot.tests.training.test_benchmark_scores import Careless, scored, seen_figures
from pivot.training.evaluation.items import Benchmark
from pivot.training.evaluation.make import Made
from pivot.training.evaluation.run import PREDICTIONS


def test_gymnasium_environments_have_every_task_and_no_level_on_both_sides(gym_benchmark: Made) -> None:
    made = gym_benchmark.benchmark
    assert made.environments == ["frozenlake", LAVA] and "minigrid" in made.facts["versions"]
    mine = [item for item in made.items.values() if item.env == LAVA]
    assert {item.question for item in mine} == {"locate", "safe", "credit"}
    truths = [made.truths[item.item_id] for item in mine]
    assert {"deadlock", "timeout"} <= {truth.failure_mode for truth in truths}
    for env, episodes in gym_benchmark.fitting.items():
        levels = {made.truths[item.item_id].level for item in made.items.values() if item.env == env}
        assert levels and not levels & {each.level for each in episodes}


@pytest.mark.parametrize(
    ("env", "message"),
    [("gym:", "expected one of sokoban"), ("chess", "or gym:ID with the id of a gymnasium environment")],
)
def test_an_unknown_environment_is_refused(tmp_path: Path, env: str, message: str) -> None:
    assert message in str(error_of("benchmark", "make", tmp_path / "out", "--env", env))
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pivot.models.extras.find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r"pivot-vlm\[gym\]"):
        make_benchmark({"out": tmp_path / "out", "env": ("gym:Taxi-v4",), "learned": False})
    assert not (tmp_path / "out").exists()


def test_the_fingerprint_is_that_of_an_independent_script(
    gym_benchmark: Made, benchmark: Benchmark, tmp_path: Path
) -> None:
    for number, made in enumerate((gym_benchmark.benchmark, benchmark)):
        assert fingerprint_of(made.root) == made.fingerprint
        copy = shutil.copytree(made.root, tmp_path / str(number), ignore=shutil.ignore_patterns("store*"))
        name = next(iter(made.items.values())).pictures[0]
        pixels = decode((copy / name).read_bytes()).copy()
        pixels[0, 0, 0] ^= 1
        (copy / name).write_bytes(encode_png(pixels))
        assert fingerprint_of(copy) != made.fingerprint, "it covers the pixels of every picture"


@pytest.mark.parametrize("kind", [Oracle, Careless])
def test_every_figure_is_that_of_the_independent_scorer(
    gym_benchmark: Made, tmp_path: Path, kind: type[Oracle]
) -> None:
    made = gym_benchmark.benchmark
    seen = seen_figures(scored(tmp_path, made, kind(made))["cells"])
    expected = figures(made.root, tmp_path / PREDICTIONS)
    assert seen.keys() == expected.keys() and seen
    for key, value in expected.items():
        assert seen[key][0] == pytest.approx(value[0], abs=1e-12), key
        assert seen[key][1:] == pytest.approx(value[1:], abs=1e-3), key  # our Student's t is rounded
