"""Servers of the benchmark that see too little, answer without end, or take their time."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pivot
import pytest
from pivot.datasets.export.predictors import LoggedFailure
from pivot.labeling.analyzer import LOG_HEADING
from pivot.tests.cli.command_line import run
from pivot.tests.models.chat_server import MODEL, served
from pivot.tests.training.test_benchmark_runs import config, text_of
from pivot.training.evaluation.baselines import Judge, fit_baselines, fit_gate
from pivot.training.evaluation.controls import locate_reply
from pivot.training.evaluation.items import LOGS, Benchmark
from pivot.training.evaluation.make import Made
from pivot.training.evaluation.run import run_benchmark
from pivot.training.evaluation.tables import best_baseline, main_share

LOCATE = {"question": ("locate",)}
_LINE = re.compile(r"step \d+: action=(\S+)")


def read_text(text: str) -> tuple[str, str, LoggedFailure]:
    """Environment, kind of log, and episode of a question, from its text alone."""
    env = "sokoban" if "box" in text.partition(LOG_HEADING)[0] else "frozenlake"
    log = text.partition(LOG_HEADING)[2]
    horizon = re.search(r"- Turns given: (\d+)", text)
    assert horizon is not None
    row = {"env": env, "horizon": int(horizon[1]), "actions": _LINE.findall(log), "action_log": log}
    episode = LoggedFailure.of_record({**row, "pivot_step": 0, "failure_mode": ""})
    return env, LOGS["the actions alone" in text], episode


def blind(made: Made) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A model that reads the text alone: it guesses the level from the log."""
    fits: dict[tuple[str, str], tuple[Callable[[LoggedFailure], bool], Judge]] = {}
    for env in made.fitting:
        for log in LOGS:
            fitting = made.episodes(env, log)
            judges, _ = fit_baselines(fitting, learned=False)
            fits[env, log] = (fit_gate(fitting, learned=False), judges["level posterior"])

    def reply(body: dict[str, Any]) -> dict[str, Any]:
        env, log, episode = read_text(text_of(body))
        is_lost, judge = fits[env, log]
        said = judge(episode)
        right = locate_reply(int(said.pivot.argmax()), said.mode) if is_lost(episode) else locate_reply(None, None)
        return {"text": right}

    return reply


def assert_at_most_the_log(result: Any, benchmark: Benchmark) -> None:
    """No figure of the pivot is above the best baseline of its cell."""
    seen = [cell for cell in result["cells"] if cell["task"] == "pivot"]
    assert len(seen) == 2 * len(benchmark.environments)
    for cell in seen:
        mine, best = main_share(cell), best_baseline(benchmark.baselines(), cell)
        assert mine is not None and best is not None and cell["read"]["strict"]["value"] > 0
        most = main_share(best[1])
        assert most is not None and mine["value"] <= most["value"], (cell["env"], cell["log"], best[0])


def test_a_served_model_that_reads_the_text_alone_is_at_most_the_log_baseline(
    made_benchmark: Made, tmp_path: Path
) -> None:
    benchmark = made_benchmark.benchmark
    with served(blind(made_benchmark)) as server:
        result = run_benchmark(config(benchmark, tmp_path, server.url, **LOCATE)).result
    assert_at_most_the_log(result, benchmark)
    baseline = next(each for each in benchmark.baselines() if each["name"] == "level posterior")
    for cell in result["cells"]:
        place = ("task", "env", "log")
        same = next(each for each in baseline["cells"] if all(each[name] == cell[name] for name in place))
        assert cell["figures"] == same["figures"], "it is the baseline, by way of prompt, server and replies"


def test_a_newcomer_gets_a_table_from_the_page_in_two_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two commands of the page in an empty folder, with a small share and another address."""
    page = (Path(pivot.__file__).parent / "docs/how-to/benchmark.md").read_text(encoding="utf-8")
    make, ask = page.partition("```console\n")[2].partition("```")[0].splitlines()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = run(*shlex.split(make)[1:], "--scale", "0.04", "--env", "frozenlake", "--no-learned")
    assert "fingerprint" in made
    with served(lambda body: {"text": locate_reply(0, "timeout")}) as server:
        command = ask.replace("MODEL", MODEL).replace("http://localhost:8000/v1", server.url)
        shown = run(*shlex.split(command)[1:])
    assert "log alone" in shown and "table.md" in shown
    table = Path("runs/mine/table.md").read_text(encoding="utf-8")
    assert f"| frozenlake | full | {MODEL} |" in table and "best on the log alone: " in table
