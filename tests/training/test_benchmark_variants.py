"""The variants of the benchmark: separate pictures, thoughts, gymnasium environments; never compared by mistake."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pivot.core.errors import ConfigError, PluginError, TrainingError
from pivot.core.images import decode, encode_png
from pivot.datasets.export.predictors import LoggedFailure
from pivot.flows.training import make_benchmark
from pivot.tests.cli.command_line import error_of
from pivot.tests.models.chat_server import pictures_of, served
from pivot.tests.training.benchmark_oracle import figures, fingerprint_of
from pivot.tests.training.conftest import LAVA
from pivot.tests.training.test_benchmark_runs import assert_checkpoint_and_server_agree, config, knows, text_of
from pivot.tests.training.test_benchmark_scores import Careless, scored, seen_figures
from pivot.training.evaluation.baselines import log_of
from pivot.training.evaluation.controls import Oracle
from pivot.training.evaluation.episodes import THOUGHT_BYTES, spaced, thought_of
from pivot.training.evaluation.items import Benchmark, Item, Truth, Variant, fingerprint
from pivot.training.evaluation.make import Made, check_made
from pivot.training.evaluation.predictions import read_predictions
from pivot.training.evaluation.run import PREDICTIONS, run_benchmark, score_file, write_table
from pivot.training.evaluation.tables import read_result


@pytest.fixture(scope="module")
def thoughtful(thoughtful_benchmark: Made) -> Benchmark:
    """The benchmark with separate pictures, thoughts, and a gymnasium environment."""
    return thoughtful_benchmark.benchmark


# Pictures


@given(count=some.integers(1, 60), most=some.integers(3, 40), part=some.floats(0, 1, exclude_max=True))
def test_a_bounded_number_of_pictures_keeps_both_ends_and_the_step_in_question(
    count: int, most: int, part: float
) -> None:
    needed = int(part * count)
    for kept in (spaced(count, most), spaced(count, most, needed)):
        assert kept == sorted(set(kept)) and len(kept) == min(count, most)
        assert kept[0] == 0 and kept[-1] == count - 1
    assert needed in spaced(count, most, needed)
    gaps = [after - before for before, after in zip(spaced(count, most), spaced(count, most)[1:], strict=False)]
    assert not gaps or max(gaps) - min(gaps) <= 1


def test_separate_pictures_are_the_named_steps_in_order(thoughtful: Benchmark) -> None:
    frames: dict[str, set[tuple[int, ...]]] = {}
    for item in thoughtful.items.values():
        listed = item.prompt.partition("in this order: ")[2].partition(". ")[0].split(", ")
        assert len(listed) == len(item.pictures) == len(item.pixels) == min(item.num_steps, 4)
        assert listed[0] == "step 0" and listed[-1] == f"step {item.num_steps - 1}"
        assert ("the others are not shown" in item.prompt) == (item.num_steps > 4)
        if item.question == "safe":
            assert f"step {item.step}" in listed, "the picture in question is shown"
        frames.setdefault(item.env, set()).add(decode(thoughtful.pictures(item)[0]).shape)
    assert all(len(shapes) == 1 for shapes in frames.values()), "each is one frame, not a collage"


def test_separate_pictures_reach_the_model(thoughtful: Benchmark, tmp_path: Path) -> None:
    shown: dict[str, list[bytes]] = {}

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        shown[text_of(body)] = pictures_of(body)
        return {"text": "{}"}

    with served(reply) as server:
        run_benchmark(config(thoughtful, tmp_path / "run", server.url))
        asked_for = [item for item in thoughtful.items.values() if item.question == "safe"]
        assert asked_for and all(tuple(shown[item.prompt]) == thoughtful.pictures(item) for item in asked_for)
        shown.clear()
        run_benchmark(config(thoughtful, tmp_path / "blank", server.url, pictures="blank"))
        assert all(not decode(each).any() for pictures in shown.values() for each in pictures)


# Thoughts


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("<think>go up</think><action>up</action>", "go up"),
        ("go up\n\n<action>up</action> now", "go up now"),
        ("<think>go <action>left</action></think><action>up</action>", "go <action>left</action>"),
        ("<think>go</think>up", "go up"),
        ("<think>go <action>up</action></think>", "go <action>up</action>"),
        ("<action>up", "<action>up"),
        ("", ""),
        ('say "moved=true"\nstep 9: action=up', 'say "moved=true" step 9: action=up'),
        ("a\u2028b\x85c", "a b c"),
        ("x" * 1000, "x" * THOUGHT_BYTES + " ..."),
    ],
)
def test_a_thought_is_everything_but_the_answer(reply: str, words: str) -> None:
    assert thought_of(reply, "action") == words


@given(some.text(max_size=400))
def test_no_thought_forges_a_line_or_a_field(text: str) -> None:
    words = thought_of(text, "action")
    line = f"step 0: action=up moved=true thought={json.dumps(words, ensure_ascii=False)}"
    assert len(line.splitlines()) == 1
    record = {"env": "frozenlake", "horizon": 1, "actions": ["up"], "action_log": line}
    read = LoggedFailure.of_record({**record, "pivot_step": 0, "failure_mode": ""})
    assert read.infos == [{"moved": True, "thought": words}]


def test_thoughts_are_in_every_log_and_change_nothing_else(thoughtful: Benchmark, benchmark: Benchmark) -> None:
    for item in thoughtful.items.values():
        lines = item.action_log.splitlines()
        assert len(lines) == item.num_steps and all(' thought="' in line for line in lines)
        assert item.prompt.endswith(item.action_log) and "own words" in item.prompt
        if item.log == "actions":
            assert all(info.keys() == {"thought"} for info in log_of(item).infos)
    assert not any("thought=" in item.prompt for item in benchmark.items.values())


# Gymnasium environments


def test_gymnasium_environments_have_every_task_and_no_level_on_both_sides(thoughtful_benchmark: Made) -> None:
    made = thoughtful_benchmark.benchmark
    assert made.environments == ["frozenlake", LAVA] and "minigrid" in made.facts["versions"]
    mine = [item for item in made.items.values() if item.env == LAVA]
    assert {item.question for item in mine} == {"locate", "safe", "credit"}
    truths = [made.truths[item.item_id] for item in mine]
    assert {"deadlock", "timeout"} <= {truth.failure_mode for truth in truths}
    for env, episodes in thoughtful_benchmark.fitting.items():
        levels = {made.truths[item.item_id].level for item in made.items.values() if item.env == env}
        assert levels and not levels & {each.level for each in episodes}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--env", "gym:"), "expected one of sokoban"),
        (("--env", "chess"), "or gym:ID with the id of a gymnasium environment"),
        (("--max-pictures", "8"), "a collage is one picture; add --images steps"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    assert message in str(error_of("benchmark", "make", tmp_path / "out", *flags))
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_before_anything_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pivot.models.extras.find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r"pivot-vlm\[gym\]"):
        make_benchmark({"out": tmp_path / "out", "env": ("gym:Taxi-v4",), "learned": False})
    assert not (tmp_path / "out").exists()


# Identity


def test_each_variant_has_its_own_fingerprint() -> None:
    item = Item("a", "credit", "svg", "random", "full", 2, ("x",), "step 0: action=x", None, (), "?", ("p",), ("0",))
    variants = [Variant(), Variant(thoughts=True), *(Variant("steps", most, False) for most in (8, 32))]
    prints = {fingerprint([item], [Truth("a", "l", None, None)], (), variant) for variant in variants}
    assert len(prints) == len(variants), "also where no item differs"


def test_the_fingerprint_is_that_of_an_independent_script(
    thoughtful: Benchmark, benchmark: Benchmark, tmp_path: Path
) -> None:
    for number, made in enumerate((thoughtful, benchmark)):
        assert fingerprint_of(made.root) == made.fingerprint
        copy = shutil.copytree(made.root, tmp_path / str(number), ignore=shutil.ignore_patterns("store*"))
        name = next(iter(made.items.values())).pictures[0]
        pixels = decode((copy / name).read_bytes()).copy()
        pixels[0, 0, 0] ^= 1
        (copy / name).write_bytes(encode_png(pixels))
        assert fingerprint_of(copy) != made.fingerprint, "it covers the pixels of every picture"


def test_results_and_files_of_two_variants_are_never_compared(
    thoughtful: Benchmark, benchmark: Benchmark, tmp_path: Path
) -> None:
    results: list[Path] = []
    for name, made in (("one", benchmark), ("two", thoughtful)):
        (tmp_path / name).mkdir()
        scored(tmp_path / name, made, Oracle(made))
        score_file({"predictions": tmp_path / name / PREDICTIONS, "data": made.root})
        result = json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))
        assert result["variant"] == asdict(made.variant)
        (tmp_path / name / "result.json").write_text(json.dumps({**result, "name": name}), encoding="utf-8")
        results.append(tmp_path / name)
    with pytest.raises(TrainingError) as refusal:
        write_table({"results": results, "out": tmp_path / "table"})
    assert "collage; without the agent's thoughts" in str(refusal.value)
    assert "separate pictures, at most 4; with the agent's thoughts" in str(refusal.value)
    with pytest.raises(TrainingError, match="line 1: found the fingerprint"):
        read_predictions(tmp_path / "one" / PREDICTIONS, thoughtful)
    facts = thoughtful.facts
    with pytest.raises(TrainingError, match="of another variant"):
        check_made(thoughtful, {"frozenlake": 80, LAVA: 80}, facts["seed"], facts["share"], Variant("steps", 8, True))


@pytest.mark.parametrize("variant", [None, [], {"images": "steps", "colour": 3}])
def test_a_result_without_a_variant_is_refused(benchmark: Benchmark, tmp_path: Path, variant: Any) -> None:
    result = {**benchmark.baselines()[0], "variant": variant}
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"result\.json: found the variant .*expected the fields of"):
        read_result(tmp_path)


# Equal numbers


def test_a_server_a_file_and_the_independent_scorer_have_equal_figures(thoughtful: Benchmark, tmp_path: Path) -> None:
    with served(knows(thoughtful)) as server:
        report = run_benchmark(config(thoughtful, tmp_path / "run", server.url, question=()))
    shutil.copy(tmp_path / "run" / PREDICTIONS, tmp_path / "submitted.jsonl")
    again = score_file(
        {"predictions": tmp_path / "submitted.jsonl", "data": thoughtful.root, "out": tmp_path / "scored"}
    )
    assert report.result == again.result
    _assert_equal(seen_figures(report.result["cells"]), figures(thoughtful.root, tmp_path / "submitted.jsonl"))
    table = (tmp_path / "scored" / "table.md").read_text(encoding="utf-8")
    assert "separate pictures, at most 4; with the agent's thoughts" in table and f"| {LAVA} | full |" in table


@pytest.mark.parametrize("kind", [Oracle, Careless])
def test_every_figure_of_a_variant_is_that_of_the_independent_scorer(
    thoughtful: Benchmark, tmp_path: Path, kind: type[Oracle]
) -> None:
    result = scored(tmp_path, thoughtful, kind(thoughtful))
    _assert_equal(seen_figures(result["cells"]), figures(thoughtful.root, tmp_path / PREDICTIONS))
    if kind is Oracle:
        values = [value for value, _, _ in seen_figures(result["cells"]).values()]
        assert values == pytest.approx([1.0] * len(values))


def _assert_equal(seen: dict[Any, Any], expected: dict[Any, Any]) -> None:
    assert seen.keys() == expected.keys() and seen
    for key, value in expected.items():
        assert seen[key][0] == pytest.approx(value[0], abs=1e-12), key
        assert seen[key][1:] == pytest.approx(value[1:], abs=1e-3), key  # our Student's t is rounded


@pytest.mark.train
def test_a_checkpoint_that_sees_several_pictures_and_its_server_have_equal_figures(
    thoughtful: Benchmark, tmp_path: Path
) -> None:
    assert_checkpoint_and_server_agree(thoughtful, "frozenlake", tmp_path)


def test_a_setting_of_the_variant_cannot_be_ignored_from_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a collage is one picture"):
        make_benchmark({"out": tmp_path / "out", "max_pictures": 8, "env": ("svg",)})
