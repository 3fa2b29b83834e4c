"""Runs on the benchmark: servers, a checkpoint, files, gymnasium; resumed, refused, changed, from the command line."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.core.errors import PivotError, PluginError, TrainingError
from pivot.core.images import decode, encode_png
from pivot.flows import training
from pivot.tests.cli.command_line import error_of, run
from pivot.tests.evaluation.benchmark_oracle import fingerprint_of
from pivot.tests.evaluation.conftest import BENCHMARK_LEVELS, CHART, LAVA, Made
from pivot.tests.evaluation.stand_ins import Mixture, Oracle, Uniform, submit
from pivot.tests.evaluation.test_benchmark_scores import Careless, check_figures
from pivot.tests.models.chat_server import MODEL, pictures_of, served
from pivot.training.evaluation import episodes, tables
from pivot.training.evaluation.controls import locate_reply
from pivot.training.evaluation.items import Benchmark, open_benchmark
from pivot.training.evaluation.make import LEVELS, make_benchmark
from pivot.training.evaluation.predictions import read_predictions
from pivot.training.evaluation.run import PREDICTIONS, run_benchmark, score_file
from pivot.training.evaluation.scores import score

pytestmark = pytest.mark.xdist_group("benchmark")
"""One test worker makes the benchmarks, for all files that use them."""
Reply = Callable[[dict[str, Any]], dict[str, Any]]


def knows(benchmark: Benchmark, rate: float = 0.5) -> Reply:
    """A server's model that recognises every item by its text and picture."""
    scripted = Mixture(benchmark, rate)
    asked_for = {(item.prompt, benchmark.pictures(item)): item for item in benchmark.items.values()}

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        question = {"messages": body["messages"][-1:]}
        return {"text": scripted.reply(asked_for[text_of(body), tuple(pictures_of(question))])}

    return reply


def text_of(body: dict[str, Any]) -> str:
    """The text of the question in a request."""
    return next(part["text"] for part in body["messages"][-1]["content"] if part["type"] == "text")


def config(benchmark: Benchmark, out: Path, url: str, **fields: Any) -> dict[str, Any]:
    """A run against a test server, of one question, without the call cache."""
    service = {"base_url": url, "cache": "", "patience_seconds": 1.0, "pause_seconds": 0.01} | fields.pop("service", {})
    return {"model": MODEL, "data": benchmark.root, "out": out, "service": service, "question": ("safe",)} | fields


def test_a_server_and_its_file_have_equal_figures(benchmark: Benchmark, tmp_path: Path) -> None:
    """Catch a figure that depends on whether a server or a file gave the answers."""
    with served(knows(benchmark)) as server:
        report = run_benchmark(config(benchmark, tmp_path / "run", server.url, question=()))
    shutil.copy(tmp_path / "run" / PREDICTIONS, tmp_path / "submitted.jsonl")
    again = score_file(
        {"predictions": tmp_path / "submitted.jsonl", "data": benchmark.root, "out": tmp_path / "scored"}
    )
    assert report.result == again.result
    assert json.loads((tmp_path / "scored" / "result.json").read_text(encoding="utf-8")) == report.result
    assert report.result["usage"]["prompt_tokens"] == 100 * len(benchmark.items)
    assert report.result["usage"]["seconds"] > 0
    table = (tmp_path / "scored" / "table.md").read_text(encoding="utf-8")
    assert "read %, strict" in table and "best on the log alone" in table


@pytest.mark.train
def test_a_checkpoint_and_a_server_of_its_replies_have_equal_figures(benchmark: Benchmark, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from pivot.tests.models.tiny_vlm import save_tiny_vlm

    save_tiny_vlm(tmp_path / "model", [item.prompt for item in benchmark.items.values()][:20])
    settings = {"data": benchmark.root, "question": ("safe",), "env": ("sokoban",)}
    local = {"model": str(tmp_path / "model"), "max_tokens": 6, "name": "tiny", "out": tmp_path / "local"}
    mine = run_benchmark({**settings, **local})
    rows = read_predictions(tmp_path / "local" / PREDICTIONS, benchmark).rows
    replies = {benchmark.items[name].prompt: row.reply for name, row in rows.items()}
    with served(lambda body: {"text": replies[text_of(body)]}) as server:
        theirs = run_benchmark(config(benchmark, tmp_path / "served", server.url, **settings))
    assert mine.result["cells"] == theirs.result["cells"]


def test_a_run_resumes_and_asks_only_for_what_is_missing(benchmark: Benchmark, tmp_path: Path) -> None:
    whole = knows(benchmark)
    lost = {"tries": 1, "max_concurrency": 1}
    with served(whole, fault=lambda key, tried: "drop" if server.log.answered >= 5 else None) as server:
        with pytest.raises(PivotError):
            run_benchmark(config(benchmark, tmp_path, server.url, service=lost))
        answered = server.log.answered
    assert not (tmp_path / "result.json").exists()
    with served(whole) as server:
        report = run_benchmark(config(benchmark, tmp_path, server.url))
        count = len([item for item in benchmark.items.values() if item.question == "safe"])
        assert server.log.answered == count - answered
        assert 0 < answered < count
        before = server.log.requests
        assert run_benchmark(config(benchmark, tmp_path, server.url)).result == report.result
        assert server.log.requests == before, "nothing is asked twice"
        with pytest.raises(TrainingError, match="another settings; resume it"):
            run_benchmark(config(benchmark, tmp_path, server.url, shots=1))
    with served(whole) as server:
        fresh = run_benchmark(config(benchmark, tmp_path / "fresh", server.url))
    assert fresh.result["cells"] == report.result["cells"]


def test_a_run_without_any_answer_is_an_error(benchmark: Benchmark, tmp_path: Path) -> None:
    def refuses(body: dict[str, Any]) -> dict[str, Any]:
        return {"text": "", "message": {"refusal": "I cannot look at pictures."}}

    with served(refuses) as server, pytest.raises(TrainingError, match=r"none of \d+ requests was answered.*look at"):
        run_benchmark(config(benchmark, tmp_path, server.url))
    assert not (tmp_path / "result.json").exists()


def test_a_reply_of_a_hundred_thousand_characters_is_wrong_and_kept_short(benchmark: Benchmark, tmp_path: Path) -> None:
    with served(lambda body: {"text": "word " * 20_000 + '{"safe_actions": ["up"]}'}) as server:
        report = run_benchmark(config(benchmark, tmp_path, server.url))
    assert all(cell["problems"] == {"too_long": cell["records"]} for cell in report.result["cells"])
    assert max(map(len, (tmp_path / PREDICTIONS).read_bytes().splitlines())) < 100_000


def test_worked_examples_and_changed_pictures_reach_the_model(benchmark: Benchmark, tmp_path: Path) -> None:
    own = {picture for item in benchmark.items.values() for picture in benchmark.pictures(item)}
    shown: list[list[bytes]] = []

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        shown.append(pictures_of(body))
        return {"text": '{"safe_actions": ["up"]}'}

    with served(reply) as server:
        common = {"env": ("sokoban",)}
        run_benchmark(config(benchmark, tmp_path / "shots", server.url, shots=2, **common))
        assert {len(each) for each in shown} == {3} and not {each[0] for each in shown} & own
        shown.clear()
        run_benchmark(config(benchmark, tmp_path / "blank", server.url, pictures="blank", **common))
        assert all(not decode(each[0]).any() for each in shown)
        shown.clear()
        run_benchmark(config(benchmark, tmp_path / "exchanged", server.url, pictures="exchanged", **common))
        assert {each[0] for each in shown} <= own


@pytest.mark.parametrize(
    ("fields", "message"), [({"env": ("svg",)}, "expected one of frozenlake, sokoban"), ({"model": None}, "model")]
)
def test_settings_that_cannot_be_used_are_refused(
    benchmark: Benchmark, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    raw: dict[str, Any] = {"model": MODEL, "data": benchmark.root, "out": tmp_path / "out", "service": {}} | fields
    with pytest.raises(PivotError, match=message):
        run_benchmark(raw)
    assert not (tmp_path / "out").exists(), "nothing is written"


# The benchmark itself


def test_a_public_benchmark_is_the_same_everywhere_and_a_private_one_nowhere(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a benchmark that depends on more than its settings and its secret."""
    monkeypatch.setattr(episodes, "LEAST", 20)
    small: dict[str, Any] = {"levels": {"frozenlake": 500}, "share": 0.04, "learned": False}
    first, second = (make_benchmark(tmp_path / name, pivot.build, **small) for name in ("a", "b"))
    private, other = (make_benchmark(tmp_path / name, pivot.build, private=True, **small) for name in ("c", "d"))
    assert len({each.fingerprint for each in (first, private, other)}) == 3 and first.fingerprint == second.fingerprint
    assert open_benchmark(benchmark.root).fingerprint == benchmark.fingerprint
    assert set(benchmark.facts["items"]) == set(BENCHMARK_LEVELS)
    again = make_benchmark(private.root, pivot.build, private=True, **small)
    assert again.fingerprint == private.fingerprint, "an interrupted one keeps its secret"
    with pytest.raises(TrainingError, match="was begun with --private"):
        make_benchmark(private.root, pivot.build, **small)
    pixels = [{name for item in made.items.values() for name in item.pixels} for made in (first, private)]
    assert not {*first.items} & {*private.items} and not pixels[0] & pixels[1]


def test_a_run_needs_the_public_part_alone_and_the_maintainer_scores(benchmark: Benchmark, tmp_path: Path) -> None:
    """Without the folder ``private``, a file holds nothing about levels, seeds, episodes or answers."""
    root = shutil.copytree(benchmark.root, tmp_path / "public", ignore=shutil.ignore_patterns("private", ".tmp"))
    assert {each.name for each in root.iterdir()} == {
        *("items.jsonl", "shots.jsonl", "pictures", "benchmark.json", "baselines.json")
    }
    names = sorted((benchmark.root / "pictures").iterdir())
    assert names == sorted(names, key=lambda each: (each.stat().st_mtime_ns, each.name)), "times tell about episodes"
    secret = json.loads((benchmark.root / "private/secret.json").read_text(encoding="utf-8"))["secret"]
    assert len(bytes.fromhex(secret)) == 16
    written = b"".join((root / name).read_bytes() for name in ("items.jsonl", "benchmark.json", "baselines.json"))
    assert not [word for word in (b"episode-v", b'"seed', b'"player', secret.encode()) if word in written]
    facts = {"version", "private", "share", "items", "versions", "canary", "public", "fingerprint"}
    assert set(benchmark.facts) == facts and {len(name) for name in benchmark.items} == {24}
    with served(knows(benchmark)) as server:
        common = {"data": root, "question": ()}
        report = run_benchmark(config(benchmark, tmp_path / "run", server.url, **common))
        whole = run_benchmark(config(benchmark, tmp_path / "whole", server.url, question=()))
    assert not report.result and report.files == (PREDICTIONS,)
    file = {"predictions": tmp_path / "run" / PREDICTIONS, "out": tmp_path / "scored"}
    with pytest.raises(TrainingError, match=r"holds no private/answers.jsonl"):
        score_file(file | {"data": root})
    assert score_file(file | {"data": benchmark.root}).result["cells"] == whole.result["cells"]


def test_no_level_is_in_two_items(made_benchmark: Made) -> None:
    """Worked examples and the training data of baselines have other levels, too."""
    made = made_benchmark.benchmark
    levels = [truth.level for truth in made.truths.values()]
    pictures = [name for item in (*made.items.values(), *(each.item for each in made.examples)) for name in item.pixels]
    assert len(set(levels)) == len(levels) and len(set(pictures)) == len(pictures)
    assert not {*levels} & {each.level for fitted in made_benchmark.fitting.values() for each in fitted}
    assert list(made.items) == sorted(made.items)
    questions = [(item, made.truths[item.item_id]) for item in made.items.values() if item.question == "safe"]
    assert {item.step == truth.pivot_step for item, truth in questions} == {True, False}, (
        "at any step, not the pivot alone"
    )
    assert all(0 < len(truth.safe_actions) < len(item.choices) for item, truth in questions)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("items.jsonl", "Decide whether the agent", "Decide if the agent"),
        ("items.jsonl", '"horizon": 9', '"horizon": 8'),
        ("private/answers.jsonl", '"pivot_step": 3', '"pivot_step": 2'),
        ("private/answers.jsonl", '"timeout"', '"deadlock"'),
        ("private/secret.json", '"secret": "', '"secret": "0'),
        ("shots.jsonl", "Valid range of", "Range of"),
        ("items.jsonl", '"pixels": ["', '"pixels": ["0'),
    ],
)
def test_a_changed_file_is_noticed(benchmark: Benchmark, tmp_path: Path, file: str, old: str, new: str) -> None:
    (tmp_path / "private").mkdir()
    for name in ("items.jsonl", "private/answers.jsonl", "private/secret.json", "shots.jsonl", "benchmark.json"):
        shutil.copy(benchmark.root / name, tmp_path / name)
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(TrainingError, match=r"was changed: found the (public|fingerprint) "):
        open_benchmark(tmp_path)


def repainted(made: Benchmark, folder: Path) -> Path:
    """A copy of a benchmark whose first picture has another value in one pixel."""
    copy = shutil.copytree(made.root, folder, ignore=shutil.ignore_patterns("store*"))
    picture = copy / next(iter(made.items.values())).pictures[0]
    pixels = decode(picture.read_bytes()).copy()
    pixels[0, 0, 0] ^= 1
    picture.write_bytes(encode_png(pixels))
    return copy


def test_a_changed_picture_is_noticed(benchmark: Benchmark, tmp_path: Path) -> None:
    copy = open_benchmark(repainted(benchmark, tmp_path / "copy"))
    with pytest.raises(TrainingError, match="shows other pixels"):
        copy.pictures(next(iter(copy.items.values())))


def test_no_item_holds_its_truth(benchmark: Benchmark) -> None:
    """A success and a failure of one length have the same text in front of the log."""
    for item in benchmark.items.values():
        text = item.prompt.lower()
        assert "episode_success" not in text and "failed episode" not in text
    assert not {each.item.item_id for each in benchmark.examples} & benchmark.items.keys()


def test_the_commands_score_and_compare(benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(tables, "results_chart", CHART)
    root = benchmark.root
    shown: list[str] = []
    for name, kind in (("oracle", Oracle), ("mixture", lambda made: Mixture(made, 0.5))):
        file = submit(tmp_path / f"{name}.jsonl", benchmark, kind, name)
        shown.append(run("benchmark", "score", file, "--data", root, "--out", tmp_path / name))
    assert "100.0" in shown[0]
    results = (tmp_path / "oracle", tmp_path / "mixture" / "result.json")
    run("benchmark", "table", *results, "--data", root, "--out", tmp_path / "table")
    table = (tmp_path / "table" / "table.md").read_text(encoding="utf-8")
    assert "| frozenlake | full | oracle |" in table and "| frozenlake | actions | mixture |" in table
    assert len(json.loads((tmp_path / "table" / "table.json").read_text(encoding="utf-8"))["results"]) == 2
    assert decode((tmp_path / "table" / "table.png").read_bytes()).std() > 10
    twice = error_of("benchmark", "table", tmp_path / "oracle", tmp_path / "oracle", "--out", tmp_path / "table")
    assert "two results of the name 'oracle'" in str(twice)
    changed = json.loads((tmp_path / "oracle" / "result.json").read_text(encoding="utf-8"))
    (tmp_path / "other.json").write_text(json.dumps(changed | {"fingerprint": "0", "name": "x"}), encoding="utf-8")
    mixed = error_of("benchmark", "table", tmp_path / "oracle", tmp_path / "other.json", "--out", tmp_path / "table")
    assert "different benchmarks" in str(mixed)


def test_a_newcomer_gets_a_table_from_the_page_in_two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch commands of the page that no longer work, in an empty folder, with a small share and another address."""
    page = (Path(pivot.__file__).parent / "docs/how-to/benchmark.md").read_text(encoding="utf-8")
    make, ask = page.partition("```console\n")[2].partition("```")[0].splitlines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(episodes, "LEAST", 20)
    words = (*shlex.split(make)[1:], "--env", "frozenlake", "--no-learned", "--scale")
    made = run(*words, "0.01")
    assert "version 4, fingerprint" in made
    assert made.splitlines()[-2] == run(*words, "0.01").splitlines()[-2], "kept"
    assert "choose another folder" in str(error_of(*words, "0.05"))
    with served(lambda body: {"text": locate_reply(0, "timeout")}) as server:
        command = ask.replace("MODEL", MODEL).replace("http://localhost:8000/v1", server.url)
        shown = run(*shlex.split(command)[1:])
    assert "log alone" in shown and "table.md" in shown
    table = Path("runs/mine/table.md").read_text(encoding="utf-8")
    assert f"| frozenlake | full | {MODEL} |" in table and "best on the log alone: " in table


@pytest.mark.long
@pytest.mark.train
def test_the_whole_benchmark_holds_what_it_promises(tmp_path: Path) -> None:
    """Every environment at full size, an hour: the oracle scores 100 %, and no baseline does."""
    made = training.make_benchmark({"out": tmp_path / "whole"})
    assert made.environments == sorted(LEVELS)
    file = submit(tmp_path / "oracle.jsonl", made, Oracle, "oracle")
    for cell in score(made, read_predictions(file, made))["cells"]:
        values = [share["value"] for share in cell["figures"]["strict"].values() if share is not None]
        assert values == pytest.approx([1.0] * len(values))
    blind = submit(tmp_path / "uniform.jsonl", made, Uniform, "uniform")
    assert score_file({"predictions": blind, "data": made.root}).result == score(made, read_predictions(blind, made))


def test_gymnasium_environments_have_questions_and_no_level_on_both_sides(gym_benchmark: Made) -> None:
    """Catch a gymnasium level that is on both sides because two seeds make it."""
    made = gym_benchmark.benchmark
    assert made.environments == ["frozenlake", LAVA] and "minigrid" in made.facts["versions"]
    mine = [item for item in made.items.values() if item.env == LAVA]
    assert "locate" in {item.question for item in mine}
    truths = [made.truths[item.item_id] for item in mine]
    assert {truth.failure_mode for truth in truths} & {"deadlock", "timeout"}
    for env, fitted in gym_benchmark.fitting.items():
        levels = {made.truths[item.item_id].level for item in made.items.values() if item.env == env}
        assert levels and not levels & {each.level for each in fitted}


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
        training.make_benchmark({"out": tmp_path / "out", "env": ("gym:Taxi-v4",), "learned": False})
    assert not (tmp_path / "out").exists()


def test_the_fingerprint_is_that_of_an_independent_script(
    gym_benchmark: Made, benchmark: Benchmark, tmp_path: Path
) -> None:
    for number, made in enumerate((gym_benchmark.benchmark, benchmark)):
        assert fingerprint_of(made.root) == made.fingerprint
        assert fingerprint_of(repainted(made, tmp_path / str(number))) != made.fingerprint, "of pixels, too"


@pytest.mark.parametrize("kind", [Oracle, Careless])
def test_every_figure_of_gymnasium_is_that_of_an_independent_scorer(
    gym_benchmark: Made, tmp_path: Path, kind: Any
) -> None:
    check_figures(tmp_path, gym_benchmark.benchmark, kind(gym_benchmark.benchmark))
