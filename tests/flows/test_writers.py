"""A served teacher in the pipeline: labels, calls and prompts in the store; verify, relabel, unanswered labels."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.cli import app
from pivot.cli.console import err, out
from pivot.cli.results import NO_GUIDANCE
from pivot.datasets.store.nights import load_store
from pivot.datasets.store.store import Store
from pivot.tests.cli.command_line import run
from pivot.tests.flow_runs import assert_whole, config_of, fingerprint
from pivot.tests.models import chat_server
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, pictures_of, served, walker
from pivot.tests.models.coaching import asked, guidance_fields
from pivot.tests.stores import Patient, change_rows, problems, rewrite_manifest, table_files
from typer.testing import CliRunner

TASKS = {"sokoban": 2, "frozenlake": 2}


def coach(body: dict[str, Any]) -> dict[str, Any]:
    """Repeat the facts of the prompt; one in five answers is unusable, the second try included."""
    text = asked(body)
    bad = number_of(text) % 5 == 0
    return {"text": "I'd rather not say." if bad else json.dumps(guidance_fields(text, "Avoid what was fatal here."))}


def both(body: dict[str, Any]) -> dict[str, Any]:
    """Answer as policy and as teacher."""
    return coach(body) if "response_format" in body else walker(body)


WAITS = {"pause_seconds": 0.01, "longest_pause": 0.1, "request_seconds": 30.0, "patience_seconds": 20.0}
QUICK: dict[str, Any] = WAITS | {"cache": ""}
"""Service settings for a server that fails often and recovers fast."""


def tables_of(root: Path) -> dict[str, str]:
    """Bytes of all files that must be equal, without the server's address."""
    return {name: digest for name, digest in fingerprint(root).items() if name.endswith(".parquet")}


def part(server: ChatServer, **service: Any) -> dict[str, Any]:
    """A model behind a server that fails often and recovers fast."""
    return chat_server.part(server, **{**QUICK, **service})


@pytest.fixture(scope="module")
def coached(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ChatServer]:
    root = tmp_path_factory.mktemp("coached") / "store"
    with served(coach) as server:
        pivot.build(config_of(TASKS, rollouts=6, teacher=part(server)), root)
    return root, server


def test_labels_say_who_wrote_them_and_every_call_is_stored(coached: tuple[Path, ChatServer]) -> None:
    root, server = coached
    assert_whole(root)
    assert problems(root) == []  # the server has stopped
    frames = load_store(root)
    labels = frames.labels.collect()
    assert set(labels["teacher"]) == {"openai"}
    config = json.loads(labels["teacher_config"][0])
    assert (config["model"], config["prompt_version"], config["is_stand_in"]) == (MODEL, "10", False)
    assert server.url not in labels["teacher_config"][0]
    rejected = labels.filter(~pl.col("accepted"))
    reasons = {reason["kind"] for row in rejected["reject_reasons"] for reason in row}
    assert 0 < rejected.height < labels.height
    assert reasons == {"not_json"}  # no second reason for the empty text
    assert set(rejected["failure_reason"]) == {""}
    calls = frames.calls.filter(pl.col("role") == "teacher").collect()
    assert calls.height == labels.height + rejected.height == server.log.answered
    assert set(calls["episode_id"]) == set(labels["episode_id"])
    assert calls["request_id"].is_unique().all()
    assert calls["prompt_tokens"].sum() == 100 * calls.height
    bodies = [body for body in server.log.bodies if "response_format" in body]
    assert set(calls["answer"]) <= {coach(body)["text"] for body in bodies}
    prompts = frames.prompts.collect()
    assert set(labels["teacher_prompt_hash"]) <= set(prompts["prompt_hash"])
    assert {"teacher.sokoban", "teacher.frozenlake"} <= set(prompts["template"])


def test_rejected_texts_never_reach_the_dataset(coached: tuple[Path, ChatServer]) -> None:
    root, _ = coached
    paths = [each for each in root.glob("dataset/[sf]*/*.parquet") if "_episodes" not in each.parent.name]
    texts = pl.concat(map(pl.read_parquet, paths))["failure_reason"]
    assert len(texts) and not texts.str.contains("what was fatal here").any()  # free text of the server


def test_the_server_is_shown_one_picture_and_asked_for_a_schema(coached: tuple[Path, ChatServer]) -> None:
    _, server = coached
    for body in server.log.bodies:
        assert len(pictures_of(body)) == 1
        assert body["response_format"]["json_schema"]["schema"]["required"][-2:] == ["wording", "prose"]


def test_a_changed_guidance_or_reason_is_found(coached: tuple[Path, ChatServer], tmp_path: Path) -> None:
    patient = Patient(coached[0], tmp_path / "copy")
    name = patient.file("sokoban", "labels")

    change_rows(patient.root, name, lambda rows: [row | {"teacher_prompt_hash": "0" * 32} for row in rows])
    assert any("teacher_prompt_hash" in problem for problem in patient.found())
    patient.heal()
    calls = next((patient.root / "calls" / "sokoban").glob("*-labels-v1.parquet")).relative_to(patient.root).as_posix()
    for wrong in ({"role": "student"}, {"episode_id": "0" * 32}):
        change_rows(patient.root, calls, lambda rows, wrong=wrong: [row | wrong for row in rows])
        assert any("is none of a teacher" in problem for problem in patient.found())
        patient.heal()


def test_equal_runs_have_equal_bytes_and_the_cache_saves_the_calls(tmp_path: Path) -> None:
    with served(coach) as server:
        server.about_model = {"root": "runs/a"}  # answers of a named checkpoint are shared
        one = config_of({"sokoban": 2}, rollouts=4, teacher=part(server, cache=str(tmp_path / "calls.sqlite")))
        pivot.build(one, tmp_path / "a")
        answers = server.log.answered
        calls = load_store(tmp_path / "a").calls.filter(pl.col("role") == "teacher").collect()
        unusable = calls.height - load_store(tmp_path / "a").labels.filter("accepted").collect().height
        pivot.build(one, tmp_path / "b")
        assert server.log.answered - answers == unusable > 0  # only these are requested again
        assert tables_of(tmp_path / "a") == tables_of(tmp_path / "b")
        again = load_store(tmp_path / "b").calls.filter(pl.col("role") == "teacher").collect()
        assert again["cache_hit"].not_().sum() == unusable


@pytest.mark.parametrize("tasks", [2, 3])
def test_unanswered_labels_are_asked_for_again(tmp_path: Path, tasks: int) -> None:
    """Some requests fail for good; the next build asks for those alone, and for those of tasks that it adds."""
    root = tmp_path / "store"
    with served(coach) as server:
        fields = {"rollouts": 4, "tasks_per_shard": 4, "teacher": part(server, tries=1)}
        config, grown = (config_of({"sokoban": number}, **fields) for number in (2, tasks))
        server.fault = lambda key, tried: "500" if number_of(key) % 4 == 0 else None
        result = pivot.build(config, root)
        labels = load_store(root).labels.collect()
        before = {row["episode_id"]: row["failure_reason"] for row in labels.to_dicts()}
        refused = labels.rows_by_key("episode_id", named=True, unique=True).items()
        waiting = {key for key, row in refused if "unanswered" in [reason["kind"] for reason in row["reject_reasons"]]}
        unanswered = len(waiting)
        assert result.unanswered == unanswered > 0 and problems(root) == []
        said = CliRunner().invoke(app, ["relabel", str(root), "--workers", "1"]).output  # keeps what is stored
        assert f"{unanswered} labels got no answer from the teacher; ask again: pivot build --out {root}" in said
        server.fault = lambda key, tried: None
        answers = server.log.answered
        assert pivot.build(grown, root).unanswered == 0
        after = {row["episode_id"]: row["failure_reason"] for row in load_store(root).labels.collect().to_dicts()}
        missing = after.keys() - before.keys() | waiting
        assert server.log.answered - answers == len(missing) + sum(not after[key] for key in missing)
        assert {key: text for key, text in before.items() if text} == {key: after[key] for key in before if before[key]}
        calls = load_store(root).calls.filter("answered", role="teacher").collect()
        assert calls.height == server.log.answered, "answers of the first build are kept and counted"
        assert problems(root) == [] and pivot.build(grown, root).already_complete
        next((root / "labels").rglob("*.parquet")).write_bytes(b"torn")
        assert pivot.build(grown, root).unanswered == 0 and problems(root) == []


def test_relabel_asks_another_teacher(tmp_path: Path) -> None:
    root = tmp_path / "store"
    pivot.build(config_of(1, rollouts=3), root)
    with served(coach) as server:
        service = ["--writer-service", "cache=", "--writer-service", f"base_url={server.url}"]
        run("relabel", root, "--writer", "openai", "--writer-model", MODEL, *service, "--workers", "1")
        assert set(load_store(root).labels.collect()["teacher"]) == {"openai"} and problems(root) == []
        calls = next((root / "calls").glob("*/*-labels-v2.parquet"))
        shutil.copy(calls, calls.with_name(calls.name.replace("v2", "v3")))  # as a killed relabelling leaves it
        # A second teacher replaces its calls and prompts, too.
        run("relabel", root, "--writer", "template", "--workers", "1")
    assert problems(root) == [] and not list((root / "calls").glob("*/*-labels-v[23].parquet"))
    assert Store.open(root).config.label_version == 3


def test_relabel_without_a_new_writer_keeps_guidance_and_asks_nobody(tmp_path: Path) -> None:
    """Catch a text that is paid for again although its prompt stays; ``--refresh`` asks about everything."""
    root = tmp_path / "store"

    relabel = partial(run, "relabel", root, "--workers", "1")

    def guidance() -> dict[str, list[Any]]:
        columns = ("episode_id", "guidance_prose", "failure_reason", "reject_reasons")
        return {key: texts for key, *texts in load_store(root).labels.select(columns).collect().rows()}

    with served(coach) as server:
        teacher = part(server, cache=str(tmp_path / "c"))
        config = config_of(2, rollouts=4, teacher=teacher, tasks_per_shard=2)
        pivot.build(config, root)
        before, requests = guidance(), server.log.requests
        spent = load_store(root).calls.filter(pl.col("role") == "teacher").collect()
        server.stop()
        relabel("--split", "episode")
        assert guidance() == before
        assert load_store(root).calls.filter(pl.col("role") == "teacher").collect().equals(spent)
        assert problems(root) == []
        server.start()
        assert server.log.requests == requests
        server.reply = lambda body: {"text": coach(body)["text"].replace("was fatal here", "lost the goal here")}
        relabel("--refresh")
        assert server.log.requests == 2 * requests
        after = guidance()
        assert {key for key in before if before[key] != after[key]} == {key for key in before if before[key][1]}
        for name in table_files(root, "sokoban"):
            if name.startswith("labels/"):
                change_rows(root, name, lambda rows: [rows[0] | {"teacher_prompt_hash": "0" * 32}, *rows[1:]])
        rewrite_manifest(root)
        for each in tmp_path.glob("c*"):
            each.unlink()
        relabel("--log", "actions")  # the writer does not see it
        assert 1 <= server.log.requests - 2 * requests <= 2
        assert guidance() == after
        assert problems(root) == []


def test_a_teacher_that_refuses_is_reported_and_asked_again_about_rejected_labels_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a store without guidance that looks finished, or labels that are paid for although they were accepted.

    Where the solver gives up, nobody is asked.
    """
    monkeypatch.setattr(out, "width", 4000)
    root = tmp_path / "store"

    def certified() -> pl.DataFrame:
        return load_store(root).labels.filter(pl.col("pivot_step").is_not_null()).collect()

    def status_of(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        return result.exit_code, result.output

    with served(lambda body: {"text": "", "message": {"refusal": "not today"}}) as server:
        few = {"solvers": {"sokoban": {"max_states": 40}}}
        pivot.build(config_of(3, rollouts=4, teacher=part(server, cache=str(tmp_path / "c")), **few), root)
        labels = certified().height
        assert labels < load_store(root).labels.collect().height
        line = f"for {labels} of {labels} labels; most frequent reason, {labels} times: refused, such as "
        for status, said in (status_of("build", "--out", str(root)), status_of("relabel", str(root))):
            assert status == NO_GUIDANCE
            assert line + "'the teacher declined: not today'" in said
            assert f"pivot relabel {root} --only-rejected" in said
        assert server.log.answered == labels  # neither asks anybody again

        server.reply = coach
        assert status_of("relabel", str(root), "--only-rejected")[0] == 0
        rejected = certified().filter(~pl.col("accepted"))
        assert 0 < rejected.height < labels
        before = server.log.requests
        server.reply = lambda body: {"text": json.dumps(guidance_fields(asked(body), "Avoid that."))}
        status, said = status_of("relabel", str(root), "--only-rejected")
        assert status == 0 and "no usable guidance" not in said
        assert certified()["accepted"].all()
        assert server.log.requests - before == rejected.height
    assert problems(root) == []


def test_rejected_prose_is_asked_again_although_the_call_cache_has_it(tmp_path: Path) -> None:
    """Catch an old answer at the price of a new one: prose that says nothing is usable, so the cache keeps it."""
    with served(lambda body: {"text": json.dumps(guidance_fields(asked(body), "Nothing."))}) as server:
        teacher = part(server, cache=str(tmp_path / "c"))
        pivot.build(config_of(2, rollouts=4, teacher=teacher, guidance="prose"), tmp_path / "store")
        first = server.log.requests
        text = "Going up, down, left or right was wrong."
        server.reply = lambda body: {"text": json.dumps(guidance_fields(asked(body), text))}
        pivot.relabel(tmp_path / "store", {}, only_rejected=True)
    assert server.log.requests == 2 * first > 0
    assert load_store(tmp_path / "store").labels.collect()["accepted"].any()


def test_a_store_of_two_checkpoints_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(err, "width", 4000)
    root = tmp_path / "store"
    warnings: list[bool] = []
    with served(coach) as server:
        for checkpoint, tasks in (("runs/a", 1), ("runs/a", 2), ("runs/b", 4)):
            server.about_model = {"root": checkpoint, "owned_by": "vllm"}
            pivot.build(config_of({"frozenlake": tasks}, rollouts=4, teacher=part(server)), root)
            said = CliRunner().invoke(app, ["build", "--out", str(root), "--workers", "1"]).output
            warnings.append("answers to the teacher come from 2 checkpoints: 'runs/" in said)
    assert warnings == [False, False, True]
    revisions = load_store(root).calls.filter(pl.col("role") == "teacher").collect()["model_revision"]
    assert {text.partition(":")[0] for text in revisions} == {"runs/a", "runs/b"}


def test_texts_of_an_older_prompt_stay_as_they_were_judged(coached: tuple[Path, ChatServer], tmp_path: Path) -> None:
    """The old prompt and its rules no longer exist; everything else of the labels is recomputed."""
    patient = Patient(coached[0], tmp_path / "copy")
    name = patient.file("sokoban", "labels")

    def age(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            config = json.loads(row["teacher_config"])
            row["teacher_config"] = json.dumps(config | {"prompt_version": "2"}, separators=(",", ":"), sort_keys=True)

    def forge(rows: list[dict[str, Any]]) -> None:
        age(rows)
        rows[0]["pivot_step"] = (rows[0]["pivot_step"] or 0) + 1

    change_rows(patient.root, name, age)
    differences = [problem for problem in patient.found() if "labels" in problem and "differ" in problem]
    assert not any("accepted" in problem or "reject_reasons" in problem for problem in differences), differences
    patient.heal()
    change_rows(patient.root, name, forge)
    assert any("pivot_step" in problem for problem in patient.found())
