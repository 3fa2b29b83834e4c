"""The studies of arms on small networks and with pictures: exact success, literacy gate, paired start, resumed runs."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pivot.benchmarks.learning import small, small_start, study, vlm, vlm_start
from pivot.benchmarks.learning.ledger import Ledger
from pivot.benchmarks.learning.lessons import Lesson, careless, played_lessons, reading_lessons
from pivot.benchmarks.learning.small_arms import ARMS, CONTROLS, arms_of
from pivot.benchmarks.learning.tensors import Tutor, pack
from pivot.benchmarks.learning.worlds import World, exact_success, explore
from pivot.datasets.store.config import env_config, environment
from pivot.environments.base import PivotEnv, Task
from pivot.models.base import image_ids
from pivot.models.transformers.model import picture_of
from pivot.rollouts.plan import plan_tasks
from pivot.solvers.credit import RULES
from pivot.solvers.puzzles import ACTIONS
from pivot.tests.training.lake import torch
from pivot.training.encode import Encoder
from pivot.training.policy_rl import loop
from pivot.training.policy_rl.advantages import credit_advantages
from pivot.training.policy_rl.learner import ScoredTurn
from pivot.training.policy_rl.levels import Levels, plan_levels
from pivot.training.policy_rl.losses import TokenBatch
from pivot.training.policy_rl.scoring import Scorer

pytestmark = pytest.mark.train
SMALL = {"size": 3, "horizon": 4, "cell": 16}


@pytest.fixture(scope="module")
def small_lakes() -> Any:
    """Lakes of nine cells and four turns, few of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(vlm.GAMES, "frozenlake", SMALL)
        patch.setattr(vlm, "LEVELS", 40)
        yield patch


@pytest.fixture(scope="module")
def start(small_lakes: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A start after a few lessons: it keeps the form and has not learned to read hints."""
    for shares in ("SEEING", "READING"):
        small_lakes.setattr(vlm_start, shares, {"student": 1})
    small_lakes.setattr(vlm_start, "WARM_UP", 10)
    small_lakes.setattr(vlm_start, "LR", 3e-3)
    reports: list[str] = []
    folder = tmp_path_factory.mktemp("study") / "frozenlake" / "start"
    vlm_start.teach("frozenlake", folder, lessons=60, report=reports.append, records=8, shards=1, analyses=0)
    assert json.loads(reports[0])["lessons"] == 60
    return folder


def test_interrupted_lessons_go_on(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catch lessons that go on from another state than they were left in."""
    shards = cache(vlm_start.make_shards)
    monkeypatch.setattr(vlm_start, "CHECK_EVERY", 2)
    monkeypatch.setattr(vlm_start, "make_shards", shards)

    def teach(name: str, report: Any, lessons: int = 4) -> Path:
        size: dict[str, int] = {"records": 8, "shards": 1, "analyses": 0}
        vlm_start.teach("frozenlake", tmp_path / name, lessons=lessons, report=report, **size)
        return tmp_path / name

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    whole = teach("whole", lambda _: None)
    with pytest.raises(KeyboardInterrupt, match='"lessons": 2'):
        teach("again", interrupt)
    with pytest.raises(ValueError, match=r"unfinished.pt: found lessons with .*'lessons': 4.*, expected .*: 6"):
        teach("again", print, lessons=6)
    shards.cache_clear()  # the shards of a new process
    again = teach("again", lambda _: None)
    assert study.digest_of(again) == study.digest_of(whole)
    assert sorted(path.name for path in again.iterdir()) == sorted(path.name for path in whole.iterdir())
    figures = [json.loads((folder / "start.json").read_text()) for folder in (whole, again)]
    assert figures[0]["history"] == figures[1]["history"]


@pytest.fixture(scope="module")
def model(start: Path) -> tuple[Levels, Any, Encoder]:
    """Levels, and the start as it is loaded by a run."""
    prepared = loop.prepare(vlm.settings_of("frozenlake", str(start)))
    return prepared.levels, prepared.model, prepared.encoder


def test_lessons_are_scored_as_the_product_scores_them(model: tuple[Levels, Any, Encoder]) -> None:
    """The pass of ``tensors.py`` over whole tables gives the log-probabilities of the product's scorer."""
    levels, player, encoder = model
    played = vlm.play_failures(levels, levels.train[:6], encoder, 2)
    samples = vlm.samples_with("uniform", levels, encoder, played)
    world = explore(levels.env, levels.config, levels.train[:6])
    every = [*played_lessons(samples, played[0], world, careless(world)), *reading_lessons(samples, played[0], encoder)]
    kinds = {"student", "hinted", "other", "cells", "panel", "moved", "same", "different"}
    assert {lesson.kind for lesson in every} == kinds
    rng = random.Random(0)
    chosen = [rng.choice([lesson for lesson in every if lesson.kind == kind]) for kind in sorted(kinds) * 3]
    scorer = Scorer(encoder)
    scorer.pictures = dict(samples.pictures)
    tutor = Tutor(player, encoder, pack(chosen, samples.pictures, encoder), "cpu")
    seen = 0
    for layout, table in tutor.tables.items():
        rows = torch.arange(len(table.ids))
        with torch.no_grad():
            logprobs, reply, mask = tutor.scores(layout, rows)
            mine = logprobs.gather(2, reply[..., None]).squeeze(2)[mask]
            lessons = [lesson for lesson in chosen if _layout(lesson, samples.pictures, encoder) == layout]
            theirs = scorer(player, [lesson.row for lesson in lessons])
        assert torch.allclose(mine, theirs, atol=1e-5)
        seen += len(lessons)
    assert seen == len(chosen)


def _layout(lesson: Lesson, pictures: Any, encoder: Encoder) -> tuple[tuple[int, int], ...]:
    """Return rows and columns of image tokens of each picture, as the processor splits it."""
    shown = [picture_of(pictures[name]) for name in image_ids(lesson.row.prompt.messages)]
    grids = encoder.prompt(lesson.row.prompt.messages, shown).grids
    assert grids is not None
    return tuple((int(rows) // 2, int(columns) // 2) for _, rows, columns in grids)


def test_an_illiterate_teacher_fails_the_gate(model: tuple[Levels, Any, Encoder]) -> None:
    levels, player, encoder = model
    figures = vlm.gate(player, encoder, levels)
    assert not figures["passed"]
    assert figures["true"] < vlm.TRUE_AT_LEAST
    assert abs(figures["informed"]) < 0.3, figures


@pytest.mark.parametrize("obeys", [True, False])
def test_a_literate_teacher_passes_the_gate(
    small_lakes: pytest.MonkeyPatch, model: tuple[Levels, Any, Encoder], monkeypatch: pytest.MonkeyPatch, obeys: bool
) -> None:
    """A planted Teacher avoids the action of the hinted step; one that finds the pivot without hints does not read."""
    _, player, encoder = model
    small_lakes.setattr(vlm, "LEVELS", 200)
    many = plan_levels(vlm.settings_of("frozenlake", "none"))

    def ideal(turns: Any, *_: Any) -> list[ScoredTurn]:
        scored = []
        for turn in turns:
            text = json.dumps(turn.teacher.prompt.messages)
            avoids = f"The step that lost it: step {turn.t}, counted" in text if obeys else turn.at_pivot
            none = torch.zeros(len(turn.student.tokens))
            batch = TokenBatch(none, none, none - 3.0 * avoids, none, none == 0, none == 0)
            scored.append(ScoredTurn(turn, batch))
        return scored

    monkeypatch.setattr(vlm, "score_turns", ideal)
    figures = vlm.gate(player, encoder, many, each=4, tasks=200)
    small_lakes.setattr(vlm, "LEVELS", 40)
    assert figures["passed"] is obeys
    assert figures["true"] > 0.9
    if obeys:
        assert figures["other"] < figures["uniform"], "a planted wrong pivot is seen"
    else:
        assert figures["uniform"] > 0.9


def _job(start: Path, arm: str, seed: int = 0) -> study.Job:
    few = {"prompts": 4, "rollouts": 2, "minibatch": 16, "analyzer_tokens": 2}
    return study.Job("frozenlake", arm, seed, start.parents[1], 2, fields=few)


def test_arms_of_a_seed_start_from_one_model(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "EVERY", 1)
    rows = {arm: study.train_arm(_job(start, arm)) for arm in ("vanilla_grpo", "oracle_1")}
    assert len({row["start"] for row in rows.values()}) == 1
    assert len({row["curve"][0] for row in rows.values()}) == 1, "the first point is that of the start"
    assert len({tuple(row["curve"]) for row in rows.values()}) == 2, "and then each goes its way"
    assert all(len(row["curve"]) == 3 for row in rows.values())
    assert rows["oracle_1"]["teacher_informed"][0] is not None


def test_rates_are_looked_at_on_training_levels_of_other_seeds(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "EVERY", 2)
    monkeypatch.setattr(study, "ProcessPoolExecutor", ThreadPoolExecutor)
    levels: list[Sequence[Task]] = []

    def watched(env: Any, config: Any, tasks: Sequence[Task]) -> World:
        levels.append(tasks)
        return explore(env, config, tasks)

    monkeypatch.setattr(study, "explore", watched)
    plan = study.rate_jobs(("frozenlake",), Path("runs"))
    assert len({job.key for job in plan}) == 3 * 3 * 8
    assert len(study.rate_jobs(("sokoban",), Path("runs"))) == 3 * 3 * 4
    assert not {job.seed for job in plan} & {job.seed for job in study.jobs(tuple(vlm.GAMES), Path("runs"))}
    path = tmp_path / "rates.jsonl"
    for _ in range(2):  # the second time, all files exist
        study.run([replace(_job(start, "vanilla_grpo", 100), lr=rate) for rate in study.RATES], path, 1)
    rows = sorted(Ledger(path, study.PROTOCOL).rows(), key=lambda row: row["lr"])
    assert [row["lr"] for row in rows] == [*study.RATES]
    assert len({row["curve"][0] for row in rows}) == 1
    assert len({row["curve"][1] for row in rows}) == 3
    assert all(first <= worst >= last for first, worst, last in (row["format_broken"] for row in rows))
    split = plan_levels(vlm.settings_of("frozenlake", "none", 100))
    assert levels == [split.train[: len(split.validation)]] * 3
    rows[0] |= {"unusual": 0.9, "curve": [0.2, 0.1]}
    table = study.rates_table(rows, "frozenlake").splitlines()
    assert table[2].startswith("| `vanilla_grpo` | 1 | 15.0, 10.0 (1 broken) | "), table
    assert len(table) == 3


def test_a_start_that_failed_the_gate_trains_no_teacher(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, int]] = []

    def row(job: study.Job) -> dict[str, Any]:
        trained.append((job.arm, job.seed))
        weight = study.ARMS[job.arm].weight
        figures = {"game": job.game, "arm": job.arm, "seed": job.seed, "weight": weight, "curve": [0.2, 0.3]}
        return figures | {"protocol": study.PROTOCOL, "cpu_seconds": 1, "start": study.digest_of(job.start)}

    monkeypatch.setattr(study, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(study, "train_arm", row)
    chosen = [_job(start, arm, seed) for seed in range(2) for arm in ("vanilla_grpo", "oracle", "progress")]
    path = tmp_path / "study.jsonl"
    study.run(chosen[:3], path, 1)
    printed = capsys.readouterr().out
    assert "left out, seeds 0: frozenlake oracle: the start of frozenlake did not pass the literacy gate" in printed
    if study.ARMS["progress"].missing:
        assert "frozenlake progress: this version has no setting credit" in printed
    study.run([job for job in chosen if job.arm == "vanilla_grpo"], path, 1)
    assert [each for each in trained if each[0] == "vanilla_grpo"] == [("vanilla_grpo", 0), ("vanilla_grpo", 1)]
    assert {each["seed"] for each in Ledger(path, study.PROTOCOL).rows()} == {0, 1}
    monkeypatch.setattr(study, "digest_of", lambda _: "another start")
    with pytest.raises(ValueError, match="expected another start"):
        study.run(chosen[:1], path, 1)


def test_a_table_shows_the_change_of_a_teacher_over_paired_seeds() -> None:
    ends = [[0.9, 0.8], [0.9, 0.7], [0.9, None]]
    rows = [
        {"game": "frozenlake", "arm": "oracle", "seed": seed, "gap_detects_pivot": end, "teacher_informed": [0.4, 0.2]}
        for seed, end in enumerate(ends)
    ]
    line = study.teacher_table(rows, "frozenlake").splitlines()[-1]
    assert line == "| `oracle` | 3 | 0.90 to 0.75 | -15.0 [-78.5, +48.5] | 0.40 to 0.20 |"


def test_levels_of_all_seeds_hold_out_the_same_split(small_lakes: pytest.MonkeyPatch) -> None:
    """The start was trained on levels of seed 0, on which no other seed may measure."""
    first, *others = (plan_levels(vlm.settings_of("frozenlake", "none", seed)) for seed in range(3))
    taught = {task.initial_state for task in first.train}
    assert not any(task.initial_state in taught for each in others for task in each.validation)


GAMES = {"frozenlake": {"horizon": 5, "size": 3}, "sokoban": {"horizon": 4, "max_solution": 3}}


def _world(game: str, levels: int, **settings: Any) -> tuple[World, PivotEnv]:
    kind, config = environment(game), env_config(game, GAMES[game] | settings)
    tasks = plan_tasks(kind, config, 3, levels)
    return explore(kind, config, tasks), kind(config)


def _policy(world: World, seed: int = 0) -> Any:
    """Return random probabilities of four actions; the rest to 1 is that of an unusable reply."""
    weights = np.random.default_rng(seed).dirichlet([0.6] * 5, len(world.states))
    return weights[:, :4]


def _by_hand(env: PivotEnv, policy_of: Callable[[str], Any]) -> float:
    """Return the success from the state of ``env`` by playing every sequence of actions, unusable ones included."""
    chances = policy_of(env.state_text())
    total = 0.0
    for action, chance in zip((*ACTIONS, "invalid"), [*chances, 1 - sum(chances)], strict=True):
        before = env.snapshot()
        _, _, ended, cut, info = env.step(env.encode_action(action))
        if info["success"]:
            total += chance
        elif not (ended or cut):
            total += chance * _by_hand(env, policy_of)
        env.restore(before)
    return total


@pytest.mark.parametrize("game", GAMES)
def test_exact_success_is_that_of_all_sequences_of_actions(game: str) -> None:
    world, env = _world(game, 3)
    policy = _policy(world)
    index = {state: place for place, state in enumerate(world.states)}
    values = exact_success(world, policy)
    for level, start in enumerate(world.starts):
        env.reset(options={"state": world.states[start]})
        assert values[level] == pytest.approx(_by_hand(env, lambda state: policy[index[state]]), abs=1e-12)


@pytest.fixture
def few_levels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reduce the study to runs that take a second."""
    monkeypatch.setattr(small_start, "LEVELS", 60)
    small.setup.cache_clear()
    yield
    small.setup.cache_clear()


@pytest.mark.usefixtures("few_levels")
def test_all_arms_of_a_seed_start_alike_and_no_other_seed_does() -> None:
    made = [small.train("frozenlake", ARMS[name], 0, 4) for name in ("vanilla_grpo", "witness_pivot", "oracle_1")]
    curves = [each["curve"] for each in made]
    assert curves[0][0] == curves[1][0] == curves[2][0]
    assert len({tuple(curve) for curve in curves}) == 3, "and then each goes its way"
    assert small_start.LOW <= made[2]["train_curve"][0] <= small_start.HIGH
    assert small.train("frozenlake", ARMS["vanilla_grpo"], 0, 4)["curve"] == curves[0], "the seed decides a run"
    assert small.train("frozenlake", ARMS["vanilla_grpo"], 1, 4)["curve"][0] != curves[0][0]


def _played(game: str, episodes: int) -> tuple[small_start.Setup, small.Turns, Any, Any]:
    """Turns, successes and starts of the start of seed 0."""
    made = small.setup(game, 0)
    starts = made.train.starts[: small.PROMPTS].repeat(episodes // small.PROMPTS)
    policy = small.policy_of(made.start, made.inputs)
    turns, _, wins = small.play(made.train, policy, starts, np.random.default_rng(0))
    return made, turns, wins, starts


@pytest.mark.usefixtures("few_levels")
def test_a_habit_is_confident_and_wrong() -> None:
    """The entropy that is computed is that of 8,000 sampled episodes."""
    made, turns, wins, _ = _played("frozenlake_habit", 8000)
    policy = small.policy_of(made.start, made.inputs)
    sampled = -(policy * np.log(policy)).sum(axis=1)[turns.state].mean()
    world = replace(made.train, starts=made.train.starts[: small.PROMPTS])
    assert small_start.entropy(world, policy) == pytest.approx(sampled, abs=0.02)
    assert exact_success(world, policy).mean() == pytest.approx(wins.mean(), abs=0.02)
    assert small_start.entropy(made.train, policy) == pytest.approx(small_start.HABIT_ENTROPY, abs=0.01)
    success = exact_success(made.train, policy)
    assert small_start.HABIT_LOW <= success.mean() <= small_start.HABIT_HIGH
    assert (success**8 + (1 - success) ** 8).mean() > 0.4, "most groups of eight agree"


@pytest.mark.usefixtures("few_levels")
@pytest.mark.parametrize("rule", RULES)
def test_credit_of_the_small_study_is_that_of_the_product(rule: str) -> None:
    made, turns, wins, starts = _played("frozenlake", small.PROMPTS * small.ROLLOUTS)
    world, groups = made.train, list[list[Any]]()
    for number, start in enumerate(starts):
        taken = [ACTIONS[action] for action in turns.action[turns.episode == number]]
        log = {"initial_state": world.states[start], "actions": taken, "horizon": world.horizon}
        episode = SimpleNamespace(env="frozenlake", episode_id=str(number), log=partial(dict, log))
        groups += [[episode]] if number % small.ROLLOUTS == 0 else []
        groups[-1] += [episode] if number % small.ROLLOUTS else []
    parts, _, unsolved = credit_advantages(groups, rule)
    assert unsolved == 0
    expected = [value for number in range(len(wins)) for value in parts[str(number)]]
    assert small.credit_of(rule, world, turns).tolist() == pytest.approx(expected)


@pytest.mark.usefixtures("few_levels")
def test_no_step_of_correction_teaches_more_tokens_than_another() -> None:
    made, turns, wins, starts = _played("frozenlake", small.PROMPTS * small.ROLLOUTS)
    failures = small.failures_of(made.train, "frozenlake", turns, wins, starts, "drawn")
    rng = np.random.default_rng(0)
    counts = {
        name: int((small.Corrector("frozenlake", arm).fixes(failures, len(turns.t), rng) >= 0).sum())
        for name, arm in ARMS.items()
        if arm.corrects == "witness"
    }
    assert counts["witness_all"] == max(counts.values()) == len(failures)


@pytest.mark.usefixtures("few_levels")
def test_a_planted_wrong_pivot_is_seen_in_the_figures() -> None:
    """The ideal Teacher finds every pivot; one with hints about a random other step falls below chance."""
    right = small.train("frozenlake", ARMS["oracle"], 0, 3)["gap_detects_pivot"]
    wrong = small.train("frozenlake", replace(ARMS["oracle"], named="random"), 0, 3)["gap_detects_pivot"]
    nothing = small.train("frozenlake", ARMS["empty"], 0, 3)["gap_detects_pivot"]
    assert right > 0.99
    assert wrong < 0.49, "an episode of one step has no other, so this is not far below"
    assert nothing == 0.5


def test_controls_differ_by_the_step_alone() -> None:
    arms = {**arms_of(habit=True), **ARMS}
    for name, control in CONTROLS.items():
        one, other = arms[name], arms[control]
        for field in ("weight", "objective", "hint", "corrects"):
            assert getattr(one, field) == getattr(other, field), field
        assert (one.named, one.step) != (other.named, other.step)


@pytest.mark.usefixtures("few_levels")
def test_a_run_goes_on_where_its_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [("frozenlake", ARMS["vanilla_grpo"], seed, 1) for seed in range(2)]
    trained: list[int] = []
    monkeypatch.setattr(small, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(small, "_one", lambda job: trained.append(job[2]) or small.train(*job))
    path = tmp_path / "small.jsonl"
    small.run(jobs[:1], path, 1)
    small.run(jobs, path, 1)
    assert trained == [0, 1]
    assert [row["seed"] for row in Ledger(path, small.PROTOCOL).rows()] == [0, 1]
