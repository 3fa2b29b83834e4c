"""Runs of several environments: what each gets of an update, figures of each, and that groups stay within one."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from hypothesis import given
from hypothesis import strategies as st
from pivot.cli.train import RL
from pivot.core.errors import ConfigError, TrainingError
from pivot.core.progress import Silent
from pivot.datasets.verify.verify import verify_store
from pivot.flows.engines.local import InProcess
from pivot.flows.pipeline import finish_store
from pivot.labeling.hindsight import hindsight_text
from pivot.solvers.api import certify_batch
from pivot.solvers.base import Verdict
from pivot.tests.cli.command_line import error_of, read
from pivot.tests.training.games import ENVIRONMENTS, ROOM, save_player_of_both, two
from pivot.tests.training.lake import bytes_of, lines_of, torch
from pivot.tests.training.rl_victim import OF_TWO, assert_resumed_alike
from pivot.training.curves import curves_figure
from pivot.training.observers import flat_metrics
from pivot.training.policy_rl import advantages, loop
from pivot.training.policy_rl.advantages import Groups
from pivot.training.policy_rl.compare_runs import compare_runs
from pivot.training.policy_rl.config import make_rl_config, settings_of_episodes
from pivot.training.policy_rl.mixture import joined_groups, member_configs, shares

pytestmark = pytest.mark.train
ENVS = tuple(ENVIRONMENTS)


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A player on disk that only knows the grammar of both games."""
    return save_player_of_both(tmp_path_factory.mktemp("player") / "start")


@pytest.fixture(autouse=True)
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no curves; a picture takes as long as an update here."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


class Run:
    """A finished run of both games, with what its updates trained on."""

    def __init__(self, player: Path, out: Path, **fields: Any) -> None:
        self.out, self.scored, self.messages = out, list[Sequence[Any]](), list[str]()
        self.config = two(player, **fields)
        self.prepared = loop.prepare(self.config)
        original = loop.score_turns

        def seen(*arguments: Any) -> Any:
            self.scored.append(original(*arguments))
            return self.scored[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "score_turns", seen)
            patch.setattr(loop, "draw_curves", lambda *_: None)
            loop.train(self.prepared, out, report=self.messages.append)
        self.lines = lines_of(out)

    def table(self, name: str, number: int, *envs: str) -> pl.DataFrame:
        """Return the stored rows of an update, counted from 1."""
        files = [self.out / "rollouts" / name / env / f"{number - 1:05d}.parquet" for env in envs or ENVS]
        return pl.concat([pl.read_parquet(file) for file in files])


@pytest.fixture(scope="module")
def run(player: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two updates under the solver's hindsight, validated before and after."""
    return Run(player, tmp_path_factory.mktemp("run") / "run", arm="oracle", validation_episodes=6)


# Shares


@given(st.lists(st.floats(0.01, 1000), min_size=1, max_size=5), st.integers(0, 60))
def test_levels_are_shared_in_proportion_and_everyone_gets_one(weights: list[float], more: int) -> None:
    """The oracle ranks all quotients at once, where the product gives one level after the other."""
    named = {str(place): weight for place, weight in enumerate(weights)}
    counts = shares(len(weights) + more, named)
    quotients = [(-w / (2 * n + 1), int(name)) for name, w in named.items() for n in range(1, more + 1)]
    best = [str(place) for _, place in sorted(quotients)[:more]]
    assert counts == {name: 1 + best.count(name) for name in named}
    assert sum(counts.values()) == len(weights) + more


def test_shares_are_those_of_levels_or_of_weights() -> None:
    def counts(**changes: dict[str, Any]) -> list[int]:
        environments = {name: {**changes.get(name, {})} for name in ("sokoban", "frozenlake", "navigation")}
        config = make_rl_config({"environments": environments, "model": "m"})
        assert (config.updates, config.prompts) == (350, 16)
        return [each.prompts for each in member_configs(config)]

    assert counts() == [5, 7, 4], "180, 216 and 120 levels"
    assert counts(sokoban={"weight": 2.0}) == [8, 4, 4]
    assert counts(sokoban={"levels": 10_000}) == [14, 1, 1]
    assert shares(16, {"one": 10, "other": 6}) == {"one": 10, "other": 6}


# Settings


def test_a_single_entry_is_a_run_of_one_environment() -> None:
    one = make_rl_config({"environments": {"sokoban": {"settings": ROOM, "levels": 40}}, "model": "m"})
    other = make_rl_config({"env": "sokoban", "settings": ROOM, "levels": 40, "model": "m"})
    assert one == other
    assert settings_of_episodes(one) == settings_of_episodes(other)
    assert "environments" not in settings_of_episodes(other), "ids of runs before the setting"
    assert member_configs(one) == [one]
    assert make_rl_config(json.loads(two("m").model_dump_json())) == two("m")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "found no environment, expected env, such as 'sokoban', or several environments"),
        ({"env": "sokoban", "environments": ENVIRONMENTS}, "environments sokoban, frozenlake: found env or settings"),
        ({"settings": ROOM, "environments": ENVIRONMENTS}, "environments sokoban, frozenlake: found env or settings"),
        ({"environments": ENVIRONMENTS, "prompts": 1}, "prompts 1: found 2 environments, expected at least one level"),
        ({"environments": {"sokoban": {"weight": 0}, "svg": {}}}, r"environments\.sokoban\.weight: found 0"),
        ({"environments": {"sokoban": {"tasks": 3}}}, r"environments\.sokoban\.tasks"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        make_rl_config({"model": "m", **fields})


def test_the_command_names_several_environments(tmp_path: Path) -> None:
    words = ("--model", "m", "--set", "sokoban.boxes=2", "--weight", "frozenlake=3")
    expected = {"sokoban": {"settings": {"boxes": 2}}, "frozenlake": {"weight": 3.0}}
    config = make_rl_config({"environments": expected, "model": "m"})
    assert read(RL, "sokoban", "frozenlake", *words) == config
    assert read(RL, "sokoban", "frozenlake", *words) == config
    file = tmp_path / "run.json"
    file.write_text(config.model_dump_json(), encoding="utf-8")
    assert read(RL, "--config", file) == config
    alone = read(RL, "sokoban", "--config", file)
    assert (alone.env, alone.settings, alone.environments) == ("sokoban", {"boxes": 2}, {})
    assert read(RL, "sokoban", "--config", file, "--set", "rows=8").settings == {"boxes": 2, "rows": 8}
    file.write_text('{"env": "sokoban", "settings": {"boxes": 2}, "model": "m"}', encoding="utf-8")
    added = read(RL, "sokoban", "frozenlake", "--config", file)
    assert added.environments["sokoban"].settings == {"boxes": 2}
    for words, message in (
        (("--set", "boxes=2"), "expected ENV.KEY=VALUE, ENV one of: sokoban, frozenlake"),
        (("--set", "svg.horizon=2"), "expected ENV.KEY=VALUE"),
        (("--weight", "svg=2"), "expected one of several environments of the run"),
        (("--set", "sokoban.boxen=2"), "boxen"),
        (("--weight", "sokoban=-2"), "--weight sokoban: found -2"),
    ):
        with pytest.raises(ConfigError, match=message):
            read(RL, "sokoban", "frozenlake", "--model", "m", *words)


# Runs


def test_one_environment_in_either_spelling_is_the_same_run(player: Path, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"prompts": 3, "rollouts": 3, "updates": 1, "arm": "mp", "minibatch": 16}
    fields |= {"max_tokens": 8, "analyzer_tokens": 4, "validation_episodes": 2, "lr": 1e-3, "held_out": 0.3}
    fields |= {"model": str(player)}
    for name, spelling in (
        ("one", {"env": "sokoban", "settings": ROOM, "levels": 20}),
        ("other", {"environments": {"sokoban": {"settings": ROOM, "levels": 20}}}),
    ):
        loop.train(loop.prepare(make_rl_config(fields | spelling)), tmp_path / name)
    assert lines_of(tmp_path / "one") == lines_of(tmp_path / "other")
    assert not [name for line in lines_of(tmp_path / "one") for name in line if "/" in name]
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "other")
    assert json.loads((tmp_path / "one" / "run.json").read_text(encoding="utf-8"))["config"]["env"] == "sokoban"


def _wrong_advantages(run: Run) -> list[tuple[str, int]]:
    """Return update and episode where an advantage is not that of the level's own episodes, from stored rows alone."""
    wrong: list[tuple[str, int]] = []
    for number, scored in enumerate(run.scored, 1):
        steps = run.table("steps", number)
        penalties = steps.group_by("episode_id").agg((0.1 * (~pl.col("action_valid")).sum()).alias("penalty"))
        rows = run.table("episodes", number).join(penalties, on="episode_id")
        returns = {row["episode_id"]: row["episode_return"] - row["penalty"] for row in rows.iter_rows(named=True)}
        level = {row["episode_id"]: (row["env"], row["task_id"]) for row in rows.iter_rows(named=True)}
        for each in scored:
            name = each.turn.episode_id
            mine = [returns[other] for other in returns if level[other] == level[name]]
            mean = sum(mine) / len(mine)
            deviation = (sum((value - mean) ** 2 for value in mine) / len(mine)) ** 0.5
            silent = len({round(value, 8) for value in mine}) == 1
            expected = 0.0 if silent else (returns[name] - mean) / (deviation + 1e-6)
            if abs(each.turn.advantage - expected) > 1e-6:
                wrong.append((name, number))
    return wrong


def test_advantages_come_from_the_episodes_of_one_level(run: Run) -> None:
    assert _wrong_advantages(run) == []
    for env in ENVS:
        names = {row for number in (1, 2) for row in run.table("episodes", number, env)["episode_id"]}
        turns = [each.turn for scored in run.scored for each in scored if each.turn.episode_id in names]
        assert any(turn.advantage for turn in turns), f"{env} teaches something"


def test_advantages_across_environments_are_found(
    player: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the deviation is that of all episodes so far, so that rewards of another scale decide the advantages."""
    seen: list[float] = []

    def across(returns: Any, eps: float = 1e-6) -> Any:
        seen.extend(returns.tolist())
        return (returns - returns.mean()) / (torch.tensor(seen).std(correction=0) + eps)

    monkeypatch.setattr(advantages, "group_advantages", across)
    assert _wrong_advantages(Run(player, tmp_path / "run", arm="vanilla_grpo", updates=1))


def _recomputed(run: Run, number: int, *envs: str) -> dict[str, float]:
    """Return figures of an update from stored rows and scored turns, without the product's code."""
    episodes, steps = run.table("episodes", number, *envs), run.table("steps", number, *envs)
    broken = dict(steps.group_by("episode_id").agg((~pl.col("action_valid")).sum()).iter_rows())
    groups = {}
    for row in episodes.iter_rows(named=True):
        value = round(row["episode_return"] - 0.1 * broken[row["episode_id"]], 6)
        groups.setdefault((row["env"], row["task_id"]), []).append((value, row["success"]))
    mine = set(episodes["episode_id"])
    scored = [each for each in run.scored[number - 1] if each.turn.episode_id in mine]
    gaps = [
        teacher - old
        for each in scored
        for teacher, old, active in zip(
            each.tokens.teacher.tolist(), each.tokens.old.tolist(), each.tokens.active.tolist(), strict=True
        )
        if active
    ]
    lengths = [len(each.turn.student.tokens) for each in scored]
    return {
        "episodes": len(episodes),
        "success": sum(episodes["success"]) / len(episodes),
        "return": sum(episodes["episode_return"]) / len(episodes),
        "steps": len(steps),
        "format_broken": sum(broken.values()) / len(steps),
        "zero_variance": sum(len({v for v, _ in each}) == 1 for each in groups.values()) / len(groups),
        "all_failed": sum(not any(won for _, won in each) for each in groups.values()) / len(groups),
        "reply_tokens": sum(lengths) / len(lengths),
        "reply_tokens_max": max(lengths),
        "opd_gap": sum(gaps) / len(gaps),
        "tokens": sum(int(each.tokens.valid.sum()) for each in scored),
    }


def test_figures_of_each_environment_and_of_all_are_those_of_the_stored_episodes(run: Run) -> None:
    for number, line in enumerate(run.lines[1:], 1):
        for name, value in _recomputed(run, number).items():
            assert line[name] == pytest.approx(value, rel=1e-4), name
        for env in ENVS:
            for name, value in _recomputed(run, number, env).items():
                assert line[f"{env}/{name}"] == pytest.approx(value, rel=1e-4), f"{env}/{name}"
        assert [line[f"{env}/episodes"] for env in ENVS] == [12, 4]
        assert not any(f"{env}/{name}" in line for env in ENVS for name in ("loss", "kl", "seconds", "lr"))
    assert flat_metrics(run.lines[1])["sokoban/success"] == run.lines[1]["sokoban/success"]
    assert "sokoban/validation/success/value" in flat_metrics(run.lines[0])


def test_hindsight_and_pivots_are_those_of_the_environment(run: Run) -> None:
    """The solver of each environment, asked again, names the pivots; the Teacher reads that environment's words."""
    modes = {"sokoban": set[str](), "frozenlake": set[str]()}
    for number, scored in enumerate(run.scored, 1):
        turns: dict[str, list[Any]] = {}
        for each in scored:
            turns.setdefault(each.turn.episode_id, []).append(each.turn)
        for env in ENVS:
            failed = run.table("episodes", number, env).filter(~pl.col("success"))
            rows = failed.to_dicts()
            for row, verdict in zip(rows, certify_batch(env, rows), strict=True):
                assert isinstance(verdict, Verdict)
                modes[env].add(verdict.failure_mode)
                for turn in turns[row["episode_id"]]:
                    assert turn.at_pivot == (turn.t == verdict.pivot_step)
                    shown = json.dumps(turn.teacher.prompt.messages)
                    context = run.prepared.members[ENVS.index(env)].levels.env.profile
                    assert verdict.failure_mode in shown and verdict.failure_mode in context.failure_modes
                    mine = hindsight_text(env, _hint(verdict)).splitlines()[2]
                    assert json.dumps(mine)[1:-1] in shown
    assert all(modes.values())


def _hint(verdict: Any) -> Any:
    from pivot.labeling.hindsight import Hindsight

    return Hindsight(("panel", "mode", "pivot"), verdict.pivot_step, verdict.failure_mode, "", None)


def test_held_out_success_is_measured_per_environment(run: Run) -> None:
    first, *_, last = run.lines
    for line in (first, last):
        each = [line[f"{env}/validation"] for env in ENVS]
        for name in ("success", "return"):
            counts = [one[name]["records"] for one in each]
            assert min(counts) >= 6
            mean = sum(one[name]["value"] * count for one, count in zip(each, counts, strict=True)) / sum(counts)
            assert line["validation"][name]["value"] == pytest.approx(mean)
            assert line["validation"][name]["records"] == sum(counts)
    card = (run.out / "final" / "README.md").read_text(encoding="utf-8")
    assert f"(sokoban {last['sokoban/validation']['success']['value']:.3f}, frozenlake " in card
    assert any("success 0" in text and "(sokoban 0" in text for text in run.messages)


def test_rollouts_of_all_are_one_store_that_is_proved(run: Run) -> None:
    root = run.out / "rollouts"
    finish_store(root, InProcess(), Silent())
    report = verify_store(root, Silent())
    assert not report.problems
    assert report.checked["episodes"] == 2 * 4 * 4
    for number in (1, 2):
        for env, count in zip(ENVS, (3, 1), strict=True):
            assert run.table("episodes", number, env)["task_id"].n_unique() == count
    text = (run.out / "samples.txt").read_text(encoding="utf-8")
    assert text.count("---- sokoban\n") == text.count("---- frozenlake\n") == 2
    counts = json.loads((run.out / "run.json").read_text(encoding="utf-8"))["levels"]
    assert {env: each.keys() for env, each in counts.items()} == {env: {"train", "validation"} for env in ENVS}


def test_curves_have_a_line_per_environment(run: Run) -> None:
    figure = curves_figure([line | {"seconds": {"rollout": 1.0}} for line in run.lines], "both")
    for panel in figure.axes[:2]:
        lines = {line.get_label(): list(line.get_ydata()) for line in panel.get_lines()}
        column = "success" if panel.get_title() == "success" else "return"
        for env in ENVS:
            values = [line[f"{env}/{column}"] for line in run.lines[1:]]
            assert lines[env] == pytest.approx(values), "a mean over one of two updates is the update"
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert {"held-out levels", *(f"held-out levels, {env}" for env in ENVS)} <= set(labels)


def test_two_runs_are_compared_per_environment(run: Run, tmp_path: Path) -> None:
    rows = {row.measure: row for row in compare_runs(run.out, run.out).rows}
    for env in ENVS:
        mean = sum(line[f"{env}/success"] for line in run.lines[1:]) / 2
        assert rows[f"{env}/success"].old == pytest.approx(mean)
        last = run.lines[-1][f"{env}/validation"]["success"]["value"]
        assert rows[f"{env}/success, held-out levels"].new == last
    assert "expected the one to evaluate: sokoban, frozenlake; name it with --env" in str(
        error_of("evaluate", "policy", run.out, "--out", tmp_path)
    )


def test_an_environment_of_a_run_is_evaluated_on_its_held_out_levels(run: Run, tmp_path: Path) -> None:
    from pivot.training.evaluation.config import PolicyEvaluationConfig
    from pivot.training.evaluation.policy import evaluate_policy

    config = PolicyEvaluationConfig(model=str(run.out), env="frozenlake", episodes=4, out=tmp_path)
    result = evaluate_policy(config, lambda _: None)
    levels = run.prepared.members[1].levels
    assert (result.levels, result.trained_on) == (len(levels.validation), 0)
    assert result.row()["settings"] == ENVIRONMENTS["frozenlake"]["settings"]


def test_silent_levels_are_replaced_by_levels_of_the_same_environment(player: Path, tmp_path: Path) -> None:
    """Replies of one token have no form, so that all episodes of a level end alike: each level is replaced twice."""
    made = Run(player, tmp_path / "run", arm="vanilla_grpo", updates=1, resample=2, rollouts=2, max_tokens=1)
    (line,) = made.lines
    assert [line[key] for key in ("resampled", "sokoban/resampled", "frozenlake/resampled")] == [8, 6, 2]
    for env, count, member in zip(ENVS, (3, 1), made.prepared.members, strict=True):
        stored = made.table("episodes", 1, env)
        assert set(stored["env"]) == {env} and stored["task_id"].n_unique() == count
        first = {member.levels.train[index].task_id for index in member.levels.sample(1, member.config)}
        assert first.isdisjoint(stored["task_id"])


def test_credit_is_that_of_each_environment(player: Path, tmp_path: Path) -> None:
    from pivot.solvers.credit import credit

    made = Run(player, tmp_path / "run", arm="vanilla_grpo", updates=1, credit="progress")
    (line,) = made.lines
    scores = {env: _scores(credit(env, made.table("episodes", 1, env).to_dicts())) for env in ENVS}
    for env in ENVS:
        assert line[f"{env}/credit"] == pytest.approx(sum(scores[env]) / len(scores[env]))
    every = [score for each in scores.values() for score in each]
    assert line["credit"] == pytest.approx(sum(every) / len(every))


def _scores(answers: Iterable[Any]) -> list[float]:
    return [turn.score for turns in answers for turn in turns]


def test_groups_of_several_environments_are_added_up() -> None:
    one = Groups({"a": 1.0}, 2, 1, 0, {"a": [1.0, 1.0, 1.0]}, 0.5, 1)
    other = Groups({"b": 2.0}, 3, 0, 1, {"b": [2.0]}, -0.5, 0)
    whole = joined_groups([one, other])
    assert whole == Groups({"a": 1.0, "b": 2.0}, 5, 1, 1, {**one.turns, **other.turns}, 0.25, 1)
    plain = replace(one, turns={}, mean_credit=None)
    assert joined_groups([plain, replace(plain, advantages={"c": 0.0})]).mean_credit is None
    assert joined_groups([one]) is one


def test_a_killed_run_of_two_goes_on_as_if_it_had_not_been(player: Path, tmp_path: Path) -> None:
    lines, files = assert_resumed_alike(player, tmp_path / "runs", ("step", "optimizer", *OF_TWO), "--two")
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert {f"rollouts/steps/{env}/00003.parquet" for env in ENVS} <= files
