"""Test the committed results of the studies: the starts they belong to, and the tables and sentences of the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.benchmarks.learning import small, study, vlm
from pivot.benchmarks.learning.ledger import Ledger, figures_table
from pivot.benchmarks.learning.vlm_start import BORROWED
from pivot.tests.evaluation.exact import check_exact_success
from pivot.training.policy_rl import loop

pytestmark = pytest.mark.train
PAGE = Path(study.__file__).parents[2] / "docs" / "reference" / "evidence.md"


def _rows(name: str, protocol: int) -> list[dict[str, Any]]:
    return Ledger(study.RESULTS / f"{name}.jsonl", protocol).rows()


def _start(game: str) -> Any:
    return loop.prepare(vlm.settings_of(game, str(study.STARTS / game)))


@pytest.mark.parametrize("game", vlm.GAMES)
def test_all_runs_continue_from_the_start_that_is_kept(game: str) -> None:
    """Its digest is in every row, and all arms of a seed have the same first point."""
    rows = [row for row in _rows("study", study.PROTOCOL) if row["game"] == game]
    assert {row["start"] for row in rows} == {study.digest_of(study.STARTS / game)}
    first = {(row["seed"], row["curve"][0]) for row in rows}
    assert len(first) == len({row["seed"] for row in rows}) == (study.MANY if game == "frozenlake" else study.FEW)


@pytest.mark.parametrize("game", vlm.GAMES)
def test_the_start_that_is_kept_reads_hindsight(game: str) -> None:
    """Catch a change of prompts or pictures after which the Teacher of the study no longer reads hints."""
    start = _start(game)
    figures = vlm.gate(start.model, start.encoder, start.levels)
    assert figures["passed"], figures
    most = 0.5 if game in BORROWED else 0.45  # one of nine turns is hinted, of four in Sokoban's first start
    assert figures["other"] < most, "hints that never name the pivot are seen in the figure"


@pytest.mark.parametrize(
    ("game", "episodes", "deviation"),
    [("sokoban", 400, 0.02), *(pytest.param(game, 20_000, 0.004, marks=pytest.mark.long) for game in vlm.GAMES)],
)
def test_exact_success_of_the_start_is_that_of_sampled_episodes(game: str, episodes: int, deviation: float) -> None:
    """400 episodes reveal a loss of two turns in four, 20,000 one of a turn in nine."""
    start = _start(game)
    tasks = start.levels.validation[:50]
    assert check_exact_success(start.levels, tasks, start.model, start.encoder, episodes) < deviation


def test_tables_of_the_page_are_those_of_the_rows() -> None:
    tables = small.short_tables(_rows("small", small.PROTOCOL))
    rows = _rows("study", study.PROTOCOL)
    tables += [figures_table(rows, game, study.ARMS, study.CONTROLS) for game in vlm.GAMES]
    page = PAGE.read_text(encoding="utf-8")
    missing = [table for table in tables if f"\n{table}\n" not in page]
    assert not missing, "\n\n".join(missing)
    firsts = (*(f"| {game} | seeds |" for game in vlm.GAMES), "| area minus")
    heads = [line for line in page.splitlines() if line.startswith(firsts)]
    assert sorted(heads) == sorted(table.splitlines()[0] for table in tables), "no table is left of earlier rows"


def test_sentences_of_the_page_in_place_of_tables_are_true() -> None:
    rows = _rows("study", study.PROTOCOL)
    falls: dict[tuple[str, str], tuple[str, float, float]] = {}
    for game in vlm.GAMES:
        for line in study.teacher_table(rows, game).splitlines()[2:]:
            arm, _, ends, change, _ = line.strip("| ").split(" | ")
            mean, above = re.findall(r"([-+][\d.]+) \[.+, (.+)\]", change)[0]
            falls[game, arm.strip("`")] = ends, float(mean), float(above)
    kept = {("frozenlake", arm): falls.pop(("frozenlake", arm))[0] for arm in ("oracle_1_start", "oracle_1_ema")}
    assert list(kept.values()) == ["0.92 to 0.92", "0.91 to 0.91"]
    assert falls.pop(("frozenlake", "mp_random_r"))[1] > 0, "its Teacher is not informed"
    assert falls["frozenlake", "oracle_1"][0] == "0.91 to 0.79"
    habit = {arm: falls.pop(("sokoban_habit", arm)) for arm in ("mp", "oracle", "mp_random_r")}
    assert (habit["mp"][0], habit["oracle"][0]) == ("0.57 to 0.52", "0.80 to 0.67") and habit["oracle"][2] < 0
    assert all(above < 0 for _, _, above in falls.values())
    assert sorted(round(-change) for _, change, _ in falls.values()) == [7, 10, 12, 13, 18, 18, 27, 28, 30]


def test_results_are_of_all_planned_runs() -> None:
    for name, plan in (("study", study.jobs), ("study_rates", study.rate_jobs)):
        keys = Ledger(study.RESULTS / f"{name}.jsonl", study.PROTOCOL).keys()
        assert keys == {job.key for job in plan(tuple(vlm.GAMES), Path("runs"))}
    assert all(json.loads((study.STARTS / game / "start.json").read_text())["gate"]["passed"] for game in vlm.GAMES)
