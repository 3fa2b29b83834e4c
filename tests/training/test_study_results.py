"""Test the committed results of the studies: the starts they belong to, and the tables of the page."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test-train")

from pivot.benchmarks.learning import small, study, vlm
from pivot.benchmarks.learning.ledger import Ledger, figures_table
from pivot.benchmarks.learning.worlds import exact_success, explore
from pivot.tests.training.lake import play_in_parts
from pivot.training.policy_rl import loop

pytestmark = pytest.mark.train
PAGE = Path(study.__file__).parents[2] / "docs" / "reference" / "results.md"


def _rows(name: str, protocol: int) -> list[dict[str, Any]]:
    return Ledger(study.RESULTS / f"{name}.jsonl", protocol).rows()


def _start(game: str) -> Any:
    return loop.prepare(vlm.settings_of(game, str(study.STARTS / game)))


@pytest.mark.parametrize("game", vlm.GAMES)
def test_all_runs_continue_from_the_start_that_is_kept(game: str) -> None:
    """Its weights are those of every row, and all arms of a seed have one first point."""
    rows = [row for row in _rows("study", study.PROTOCOL) if row["game"] == game]
    assert {row["start"] for row in rows} == {study.digest_of(study.STARTS / game)}
    first = {(row["seed"], row["curve"][0]) for row in rows}
    assert len(first) == len({row["seed"] for row in rows}) == (study.MANY if game == "frozenlake" else study.FEW)


@pytest.mark.parametrize("game", vlm.GAMES)
def test_the_start_that_is_kept_reads_hindsight(game: str) -> None:
    start = _start(game)
    figures = vlm.gate(start.model, start.encoder, start.levels)
    assert figures["passed"], figures
    assert figures["other"] < 0.45, "hints that never name the pivot are seen in the figure"


@pytest.mark.long
@pytest.mark.parametrize("game", vlm.GAMES)
def test_exact_success_of_the_start_is_that_of_20_000_episodes(game: str) -> None:
    start = _start(game)
    tasks = start.levels.validation[:50]
    world = explore(start.levels.env, start.levels.config, tasks)
    policy = vlm.ExactReader(start.levels, world, start.encoder).policy(start.model)
    values = exact_success(world, policy)
    share = play_in_parts(start.levels, tasks, start.model, start.encoder, 20_000)
    deviation = ((values * (1 - values)).sum() / (20_000 // len(tasks))) ** 0.5 / len(values)
    assert deviation < 0.004
    assert abs(share - values.mean()) < 4 * deviation + world.horizon * (1 - policy.sum(axis=1)).mean()


def test_tables_of_the_page_are_those_of_the_rows() -> None:
    tables = [figures_table(_rows("small", small.PROTOCOL), game, small.ARMS, small.CONTROLS) for game in small.GAMES]
    silent = _rows("small_silent", small.PROTOCOL)
    tables += [figures_table(silent, game, small.ARMS, small.CONTROLS) for game in small.GAMES]
    rows, rates = _rows("study", study.PROTOCOL), _rows("study_rates", study.PROTOCOL)
    for game in vlm.GAMES:
        tables += [figures_table(rows, game, study.ARMS, study.CONTROLS), study.teacher_table(rows, game)]
        tables += [study.rates_table(rates, game)]
    page = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [line for table in tables for line in table.splitlines() if line and line not in page]
    assert len("\n".join(tables).splitlines()) > 90
    assert not missing, "\n".join(missing)


def test_results_are_of_all_planned_runs() -> None:
    for name, plan in (("study", study.jobs), ("study_rates", study.rate_jobs)):
        keys = Ledger(study.RESULTS / f"{name}.jsonl", study.PROTOCOL).keys()
        assert keys == {job.key for job in plan(tuple(vlm.GAMES), Path("runs"))}
    assert all(json.loads((study.STARTS / game / "start.json").read_text())["gate"]["passed"] for game in vlm.GAMES)
