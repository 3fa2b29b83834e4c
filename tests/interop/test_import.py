"""Import of recorded episodes: round trips, agreement with the replay, resume, and what verify finds afterwards."""

import json
from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pivot
import pyarrow.parquet as pq
import pytest
from pivot.core.errors import ConfigError, PluginError, StoreError
from pivot.datasets.export.base import LabelledShard
from pivot.datasets.export.describe import find_episode
from pivot.datasets.export.turns import ShardTurns
from pivot.datasets.sql.views import query
from pivot.datasets.store.store import Store
from pivot.environments.navigation.environment import NavigationConfig, NavigationEnv
from pivot.interop import episode as schema
from pivot.interop import reading as importing
from pivot.interop.jsonl import JsonlImporter
from pivot.interop.run import _ImportStage
from pivot.tests.stores import Patient, build_tiny, change_rows, problems, rewrite_manifest

from .recorded import LEVEL, SETTINGS, episode, imports_of, lines_of_store, write_lines

LABEL = ("pivot_step", "failure_mode", "certificate", "witness", "feasible_actions", "accepted", "proved")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("built") / "store", tasks_per_shard=1)


def _labels(root: Path, by: dict[str, str] | None = None) -> dict[str, Any]:
    rows = pivot.load_store(root).labels.collect().to_dicts()
    names = [str(row["episode_id"]) for row in rows]
    return {(by or {}).get(name, name): [row[each] for each in LABEL] for name, row in zip(names, rows, strict=True)}


def test_a_turn_with_fewer_actions_spends_its_budget(tmp_path: Path) -> None:
    # The level takes two moves and the budget is two turns of two actions: one wasted slot is allowed, three are not.
    played = episode(["up"], ["right", "down"], actions_per_turn=2)
    played["turns"][1]["response"] = "Right, then down."
    pivot.import_rollouts(write_lines(tmp_path / "source", played), tmp_path / "store")
    steps = pivot.load_store(tmp_path / "store").steps.collect()
    assert steps["action"].to_list() == ["up", "invalid", "right", "down"]
    assert steps["reply_outcome"].to_list() == ["ok", "unused", "ok", "ok"]
    assert imports_of(tmp_path / "store")[0]["turn_starts"] == [0, 2] and problems(tmp_path / "store") == []
    store = Store.open(tmp_path / "store")
    with ShardTurns(LabelledShard(store, store.config.shards()[0], {})) as turns:
        assert not any(map(turns.said, *turns.steps.values())), "a reply of two actions is that of neither"


def test_a_log_that_stops_early_is_kept_without_a_label(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "source", episode("up", "up"), episode("up", "up", "up", "up"))
    result = pivot.import_rollouts(source, tmp_path / "store")
    store = pivot.load_store(tmp_path / "store")
    assert store.episodes.collect()["status"].to_list() == ["truncated", "complete"]
    assert store.labels.collect().height == 1 and result.episodes == 2 and problems(tmp_path / "store") == []
    pivot.import_rollouts(write_lines(tmp_path / "cut", episode("up", "up")), tmp_path / "none")
    assert "PIVOT played" not in (tmp_path / "none" / "dataset" / "README.md").read_text()


@pytest.mark.parametrize(
    ("reply", "options", "dropped"),
    [
        ([1], {"words": "up:0,left:1"}, None),
        (["0"], {"words": "left:0"}, None),
        ("Move: left", {"pattern": r"Move: (\w+)"}, ()),
        ("<action>west</action>", {"words": "left:west"}, ()),
        ("<action>left.</action> or <action>up</action>", {"spelling": "loose"}, ("up",)),
        ("<action>right</action>, no: <action>left</action>", {"container": "last"}, ()),
        ("<move>left, up</move>", {"tag": "move", "separator": ","}, ("up",)),
    ],
)
def test_a_dialect_is_that_of_every_environment(reply: Any, options: Any, dropped: Any, tmp_path: Path) -> None:
    turn = {"response": reply} if isinstance(reply, str) else {"actions": reply}
    row = {"format": "pivot-episode-1", "env": "gym", "seed": 1, "turns": [turn]}
    reader, source = JsonlImporter(**options), write_lines(tmp_path / "source", row)
    (read,) = reader.read(source, next(iter(reader.places(source)))).turns
    assert read.actions == ["left"] and (read.reading and read.reading.dropped) == dropped


def test_the_seed_gives_the_level(tmp_path: Path) -> None:
    from pivot.environments.sokoban import SokobanConfig, SokobanEnv

    task = SokobanEnv.make_task(SokobanConfig(), 5)
    recorded = episode(*["up"] * 9, env_config={}, seed=task.seed)
    del recorded["initial_state"]
    options = {"generator": "pivot"}
    pivot.import_rollouts(write_lines(tmp_path / "source", recorded), tmp_path / "store", options=options)
    assert pivot.load_store(tmp_path / "store").episodes.collect()["initial_state"].to_list() == [task.initial_state]
    assert imports_of(tmp_path / "store")[0]["state_source"] == "seed"


def test_a_wrong_record_is_left_out_unless_it_is_allowed(tmp_path: Path) -> None:
    wrong = episode("up", "up", "up", "up", success=True, terminated=True, id="wrong")
    source = write_lines(tmp_path / "source", wrong, episode("up", "up", "up", "up"))
    options = {"evidence": "declared"}  # without it a success that does not replay makes the source untrusted
    result = pivot.import_rollouts(source, tmp_path / "strict", options=options, workers=2)
    (problem,) = result.problems
    assert (problem.place, problem.kind) == ("episodes.jsonl line 1", "disagrees")
    assert "the log says True" in problem.detail
    left_out = [row for row in imports_of(tmp_path / "strict") if row["left_out"]]
    assert [(row["place"], row["episode_id"]) for row in left_out] == [("episodes.jsonl line 1", None)]
    pivot.import_rollouts(source, tmp_path / "lax", require=(), options=options)
    assert [row["end_agrees"] for row in imports_of(tmp_path / "lax")] == [False, None]


def test_rewards_and_states_are_compared(tmp_path: Path) -> None:
    other = episode("up", "up", "up", "up")
    other["turns"][1] |= {"reward": 7.0}
    moved = episode("up", "up", "up", "up")
    moved["turns"][2] |= {"state": LEVEL}
    won = episode("right", "right")
    won["turns"][0] |= {"reward": 7.0}
    won["turns"][1] |= {"reward": 10.9}  # by another scheme, the value of ours
    result = pivot.import_rollouts(write_lines(tmp_path / "source", other, moved, won), tmp_path / "store")
    assert result.problems == []
    columns = ("rewards_agree", "states_agree", "confirmed_turns")
    agreed = [tuple(map(row.get, columns)) for row in imports_of(tmp_path / "store")]
    assert agreed == [(False, None, 0), (None, True, 1), (False, None, 0)]
    result = pivot.import_rollouts(tmp_path / "source", tmp_path / "strict", require=["rewards"])
    expected = [f"rewards: turn {turn} gives -0.1, the log says 7" for turn in (1, 0)]
    assert [problem.detail for problem in result.problems] == expected


def test_resume_after_a_kill_gives_the_same_bytes(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = lines_of_store(built, tmp_path / "source")
    options: dict[str, Any] = {"config": {"tasks_per_shard": 1}}
    pivot.import_rollouts(source, tmp_path / "whole", **options)
    make, calls = _ImportStage.make, []

    def killed(self: Any, pending: Any) -> Any:
        calls.append(self.shard)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return make(self, pending)

    with monkeypatch.context() as patch:
        patch.setattr(_ImportStage, "make", killed)
        with pytest.raises(KeyboardInterrupt):
            pivot.import_rollouts(source, tmp_path / "store", **options)
    result = pivot.import_rollouts(source, tmp_path / "store", **options)
    assert result.build is not None and result.build.reused_shards >= 0
    assert _bytes(tmp_path / "store") == _bytes(tmp_path / "whole")
    again = pivot.import_rollouts(source, tmp_path / "store", **options)
    assert again.build is not None and again.build.already_complete


def _bytes(root: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".duckdb"]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if ".receipts" not in path.parts}


def test_another_source_is_refused(tmp_path: Path) -> None:
    pivot.import_rollouts(write_lines(tmp_path / "one", episode(*["up"] * 4)), tmp_path / "store")
    with pytest.raises(StoreError, match="an import of other episodes"):
        pivot.import_rollouts(write_lines(tmp_path / "two", episode(*["left"] * 4)), tmp_path / "store")


def test_verify_finds_a_changed_row(tmp_path: Path) -> None:
    said = {"turns": [{"actions": ["up"], "response": "up"}] * 4}
    pivot.import_rollouts(write_lines(tmp_path / "source", episode(**said)), tmp_path / "whole")
    patient = Patient(tmp_path / "whole", tmp_path / "store")
    for column, value in {"action": "right", "reward": 3.0, "response": "x" * 100_000}.items():
        change_rows(patient.root, patient.file("sokoban", "steps"), lambda rows: rows[1].update({column: value}))  # noqa: B023
        assert patient.found(), column
        patient.heal()


WORDS: tuple[list[str] | None, ...] = (["picture", "reward"], ["read"], [], None)


@pytest.fixture(scope="module")
def confirmed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an imported store whose episodes rest on ``WORDS``, labelled again."""
    root = tmp_path_factory.mktemp("confirmed") / "store"
    pivot.import_rollouts(lines_of_store(built, root.parent / "source"), root)
    words = cycle(WORDS)

    def confirm(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["evidence"] = next(words)

    for path in sorted(root.glob("imports/*/*.parquet")):
        change_rows(root, path.relative_to(root).as_posix(), confirm)
    rewrite_manifest(root)
    pivot.relabel(root, {})
    return root


def test_no_label_without_evidence_is_accepted_and_every_row_says_what_it_rests_on(confirmed: Path) -> None:
    assert not [each for each in problems(confirmed) if each.startswith(("labels", "dataset"))]  # others: imports
    labels = pivot.load_store(confirmed).labels.collect().to_dicts()
    imported = {row["episode_id"]: row["evidence"] or [] for row in imports_of(confirmed)}
    expected = {row["episode_id"]: imported[row["episode_id"]] for row in labels}
    assert {row["episode_id"]: row["evidence"] for row in labels} == expected
    assert len({tuple(row["evidence"]) for row in labels}) == 3
    for row in labels:
        reasons = [(each["name"], each["kind"]) for each in row["reject_reasons"]]
        assert (("evidence", "unconfirmed") in reasons) == (not row["evidence"])
        assert row["accepted"] == (not reasons) and row["pivot_step"] is not None
    accepted = {row["episode_id"]: row["evidence"] for row in labels if row["accepted"]}
    records = [row for path in confirmed.glob("dataset/*/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert {row["episode_id"]: row["evidence"] for row in records if "evidence" in row} == accepted != {}
    counts = dict(Counter(", ".join(words) or "none" for words in (row["evidence"] for row in labels)))
    assert dict(query(confirmed, "SELECT evidence, sum(labels)::INT FROM evidence GROUP BY ALL")[1]) == counts
    assert dict(query(confirmed, "SELECT episode_id, evidence FROM failures")[1]) == expected
    assert "| sokoban | picture, reward | " in (confirmed / "dataset" / "README.md").read_text()
    names = {tuple(row["evidence"]): row["episode_id"] for row in labels if row["evidence"] in ([], ["read"])}
    store = Store.open(confirmed)
    facts = {words: dict(find_episode(store, name).facts())["rests on"] for words, name in names.items()}
    assert facts == {(): "nothing that confirms its actions", ("read",): "read"}


@pytest.mark.parametrize("kind", ["analyzer", "corrections", "credit"])
def test_an_export_has_confirmed_episodes_alone(confirmed: Path, tmp_path: Path, kind: str) -> None:
    pivot.export(confirmed, tmp_path / "out", format=kind, workers=1)
    rows = [row for path in (tmp_path / "out").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert {tuple(row["evidence"]) for row in rows} == {("picture", "reward"), ("read",)}


@pytest.mark.parametrize("table", ["labels", "dataset", "imports"])
def test_verify_finds_changed_evidence(confirmed: Path, tmp_path: Path, table: str) -> None:
    patient = Patient(confirmed, tmp_path / "store")
    name = patient.file("frozenlake", table)
    change_rows(patient.root, name, lambda rows: rows[0].update(evidence=["board"]))
    assert any("evidence" in problem for problem in patient.found())


def test_an_imported_store_cannot_be_played_or_merged(tmp_path: Path) -> None:
    pivot.import_rollouts(write_lines(tmp_path / "source", episode(*["up"] * 4)), tmp_path / "store")
    with pytest.raises(PluginError, match="cannot be played again"):
        pivot.build(json.loads((tmp_path / "store" / "run.json").read_text())["config"], tmp_path / "other")
    with pytest.raises(ConfigError, match="imported episodes"):
        pivot.merge(tmp_path / "store", out=tmp_path / "merged")
    pivot.relabel(tmp_path / "store", {"target_vocabulary": "paper"})
    assert problems(tmp_path / "store") == []


def test_settings_on_the_command_replace_the_recorded_ones(tmp_path: Path) -> None:
    long = episode("up", "up", "up", "up", env_config={**SETTINGS, "horizon": 9}, truncated=True)
    source = write_lines(tmp_path / "source", long, episode("up", "up", "up", "up"))
    (problem,) = pivot.import_rollouts(source, tmp_path / "one").problems
    assert problem.place == "episodes.jsonl line 1"
    result = pivot.import_rollouts(source, tmp_path / "two", settings={"sokoban": {"horizon": 4}})
    assert result.problems == []


def test_one_level_has_one_text(tmp_path: Path) -> None:
    spellings = [LEVEL, f"{LEVEL}\n", LEVEL.replace("\n", "\r\n"), LEVEL.replace("\n", "   \n")]
    lines = [episode(*["up"] * 4, id=str(number), initial_state=each) for number, each in enumerate(spellings)]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert result.problems == []
    assert pivot.load_store(tmp_path / "store").episodes.collect()["initial_state"].to_list() == [LEVEL] * 4


def test_a_room_may_have_two_spellings(tmp_path: Path) -> None:
    room = NavigationEnv.make_task(NavigationConfig(), 3)
    base = {"env": "navigation", "env_config": {"horizon": 4}, "instruction": room.instruction, "success": False}
    spellings = [room.initial_state, json.dumps(json.loads(room.initial_state), indent=1)]
    source = write_lines(
        tmp_path / "source", *(episode(*["lookup"] * 4, **base, initial_state=each) for each in spellings)
    )
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert result.episodes == 2 and problems(tmp_path / "store") == []


def test_null_means_absent_and_the_mark_of_utf8_is_skipped(tmp_path: Path) -> None:
    nulls = dict.fromkeys(("env_config", "goal_idx", "eval_set", "actions_per_turn", "state_source", "policy"))
    source = write_lines(tmp_path / "source", b"\xef\xbb\xbf" + json.dumps(episode("up", **nulls)).encode())
    result = pivot.import_rollouts(source, tmp_path / "store")
    assert result.problems == [] and result.episodes == 1
    result = pivot.import_rollouts(write_lines(tmp_path / "other", episode("up", env=None)), tmp_path / "none")
    assert "env" in result.problems[0].detail


def test_settings_are_compared_with_the_defaults_of_the_store(tmp_path: Path) -> None:
    plain, paid = episode(*["up"] * 4), episode(*["up"] * 4, env_config={**SETTINGS, "step_reward": 0.0})
    for name, lines, words in (("one", [plain, paid], "0.0, the store has -0.1"), ("two", [paid, plain], "-0.1, the")):
        result = pivot.import_rollouts(write_lines(tmp_path / name, *lines), tmp_path / f"store-{name}")
        assert [problem.place for problem in result.problems] == ["episodes.jsonl line 2"]
        assert f"sokoban.step_reward is {words}" in result.problems[0].detail


def test_the_schema_file_is_that_of_the_models() -> None:
    path = Path(schema.__file__).with_name("episode.schema.json")
    assert json.loads(path.read_text()) == schema.json_schema()


def test_a_level_with_many_episodes_becomes_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "EPISODES_AT_ONCE", 3)
    lines = [episode(*["up"] * 4, id=str(number), task_id="level") for number in range(8)]
    result = pivot.import_rollouts(write_lines(tmp_path / "source", *lines), tmp_path / "store")
    assert result.problems == [] and result.episodes == 8
    episodes = pivot.load_store(tmp_path / "store").episodes.collect()
    counts = dict(episodes["task_id"].value_counts().rows())
    assert counts == {"level": 3, "level-part-2": 3, "level-part-3": 2}
    assert problems(tmp_path / "store") == []


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"sokoban": {"horizn": 5}}, {}),
        ({"sokobn": {"horizon": 5}}, {}),
        ({}, {"env": "sokobn"}),
        ({}, {"env": "sokoban", "words": "north:up"}),
        ({}, {"pattern": "("}),
    ],
)
def test_a_wrong_setting_is_refused_once_before_reading(tmp_path: Path, settings: Any, options: Any) -> None:
    source, out = tmp_path / "missing", tmp_path / "store"
    with pytest.raises((ConfigError, PluginError)):
        pivot.import_rollouts(source, out, format="openai", settings=settings, options=options)


def test_verify_makes_the_audit_again(tmp_path: Path) -> None:
    turns = [{"actions": [move], "reward": -0.1} for move in ("up", "left", "up", "left")]
    record = episode(turns=turns, success=False)
    pivot.import_rollouts(write_lines(tmp_path / "source", record), tmp_path / "store")
    assert problems(tmp_path / "store") == []
    path = tmp_path / "store" / "audit.json"
    audit = json.loads(path.read_text())
    assert audit["environments"]["sokoban"]["evidence"] == {"read": 1}
    audit["environments"]["sokoban"]["evidence"] = {"picture": 1}
    path.write_text(json.dumps(audit))
    rewrite_manifest(tmp_path / "store")
    assert any("audit.json" in each for each in problems(tmp_path / "store"))
    assert "audit.json" in (tmp_path / "store" / "manifest.json").read_text()
