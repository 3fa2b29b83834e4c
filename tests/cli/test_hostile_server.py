"""Check that every command shows hostile text and the replies of a hostile server as inert, literal text."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pivot
import pytest
import typer
from pivot.cli import app
from pivot.cli.console import out, show_error
from pivot.cli.results import show_result
from pivot.core.errors import printable
from pivot.datasets.store.store import Store
from pivot.flows.pipeline import result_of
from pivot.tests.cli.command_line import error_of
from pivot.tests.flow_runs import config_of
from pivot.tests.flows.test_writers import coach
from pivot.tests.models.chat_server import MODEL, ChatServer, number_of, part, served, walker
from pivot.tests.stores import Rows, change_rows, rewrite_manifest, table_files
from typer.testing import CliRunner

LINK = "see https://evil.invalid/[link=https://evil.invalid]here[/link]"
HOSTILE = "a[bold red]b[/] \x1b[2J\x1b]0;title\x07 :smile: d\x9b31me \u202eflip\u202c \r\n✓ all is well \x00 [/n] \\[x]"
TEXT = f"{LINK} {HOSTILE}"
QUICK: dict[str, Any] = {"tries": 1, "pause_seconds": 0.01, "longest_pause": 0.02, "patience_seconds": 5.0}


def hostile_player(body: dict[str, Any]) -> dict[str, Any]:
    """Return a usable action with hostile characters in every field that a store keeps."""
    reply = walker(body)
    ending = HOSTILE[:30] if number_of(body["seed"]) % 40 == 0 else "stop"
    return reply | {"text": f"<think>{TEXT}</think>{reply['text']}", "finish_reason": ending}


def hostile_coach(body: dict[str, Any]) -> dict[str, Any]:
    """Refuse, answer without JSON, or put control characters into the text that becomes guidance."""
    number = number_of(json.dumps(body["messages"])) % 4
    if number == 0:
        return {"text": "", "message": {"refusal": TEXT}}
    if number == 1:
        return {"text": TEXT}
    fields = json.loads(coach(body)["text"]) if coach(body)["text"].startswith("{") else {}
    return {"text": json.dumps(fields | {"prose": f"Avoid [bold]that[/] \x1b[31m.\r\n✓ {LINK}"})}


Talkative = tuple[Path, ChatServer, ChatServer]


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talkative]:
    """A store of hostile replies, guidance and errors, with its call cache, and the servers that sent them."""
    folder = tmp_path_factory.mktemp("talkative")
    with served(hostile_player) as player, served(hostile_coach) as writer:
        player.about_model = writer.about_model = {"root": TEXT, "parent": HOSTILE}
        player.refusal, player.fault = TEXT, lambda key, tried: "422" if number_of(key) % 7 == 0 else None
        quick = QUICK | {"cache": str(folder / "calls.sqlite")}
        policy, teacher = part(player, **quick), part(writer, **quick)
        pivot.build(config_of({"sokoban": 2}, rollouts=4, policy=policy, teacher=teacher), folder / "store")
        yield folder, player, writer


def obeys_nothing(output: str) -> None:
    """Check that the output has no control character and no line that starts with hostile text."""
    for character in output:
        assert character.isprintable() or character == "\n", f"{character!r} in {output!r}"
    assert not re.search(r"^\s*✓ (all is well|see)", output, re.MULTILINE), output


def shown(*arguments: str | Path) -> str:
    """Return the output of a command, with the line of its error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    output = result.output
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, pivot.PivotError), result.exception
        with out.capture() as caught:
            out.print(str(result.exception))
        output += caught.get()
    obeys_nothing(output)
    return output


COMMANDS = (
    ("stats STORE", "sokoban"),
    ("stats STORE SQL", r"[bold red]b[/] \x1b[2J"),
    ("peek STORE", "sokoban"),
    ("verify STORE --workers 1", "STORE holds"),
    ("compare STORE STORE", "(old) against"),
    ("probe STORE --arm no_hint --workers 1", "retries that return more"),
    ("view STORE --out REPORT", "open it"),
    ("top STORE", "pivot peek"),
    ("plot STORE --out PLOTS", "wrote to"),
)


@pytest.mark.parametrize(("line", "says"), COMMANDS, ids=[line.partition(" ")[0] for line, _ in COMMANDS])
def test_every_command_that_reads_a_store(
    talkative: Talkative, line: str, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(out, "width", 4000)
    folder = talkative[0]
    sql = "select response, finish_reason from steps union all select error, '' from episodes"
    places = {"STORE": str(folder / "store"), "CACHE": str(folder / "calls.sqlite"), "SQL": sql}
    places |= {"REPORT": str(tmp_path / "report"), "PLOTS": str(tmp_path / "plots")}
    assert says.replace("STORE", places["STORE"]) in shown(*(places.get(word, word) for word in line.split()))


def test_peek_at_every_episode(talkative: Talkative) -> None:
    """Failures with guidance, with a refusal in its place, and episodes that a server's error ended."""
    root = talkative[0] / "store"
    episodes = pivot.load_store(root).episodes.collect()
    assert set(episodes["status"]) == {"complete", "error"}
    texts = [shown("peek", root, name) for name in episodes["episode_id"]]
    assert any("https://evil.invalid/[link=https://evil.invalid]here[/link]" in text for text in texts)


def test_doctor(talkative: Talkative, monkeypatch: pytest.MonkeyPatch) -> None:
    _, player, _ = talkative
    monkeypatch.setattr(out, "width", 4000)
    said = shown("doctor", "--base-url", player.url, "--model", MODEL)
    assert r"[bold red]b[/] \x1b[2J" in said
    assert LINK in said
    monkeypatch.setattr(player, "models", [TEXT])
    assert LINK in shown("doctor", "--base-url", player.url, "--model", MODEL)


def test_errors_of_build_and_relabel(talkative: Talkative, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = talkative[0] / "store"
    with served(fault=lambda key, tried: "403", notes_meetings=True) as server:
        server.refusal = TEXT
        with pytest.raises(pivot.PivotError) as refused:
            pivot.build(config_of(1, policy=part(server)), tmp_path / "new")
        address = ["--writer-model", MODEL, "--writer-service", f"base_url={server.url}"]
        address += ["--writer-service", "cache=", "--writer-set", "revision=r2"]
        for error in (refused.value, error_of("relabel", root, "--workers", "1", *address)):
            assert LINK in str(error)
            show_error(str(error))
            said = capsys.readouterr().err
            obeys_nothing(said)
            assert said.count("\n") == 1


def test_the_end_of_a_build(talkative: Talkative, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(Store.open(talkative[0] / "store"))
    assert result is not None
    with pytest.raises(typer.Exit):  # some episodes are pending
        show_result(result)
    said = capsys.readouterr().out
    obeys_nothing(said)
    assert "Models" in said


SHOWN = r"a[bold red]b[/] \x1b[2J\x1b]0;title\x07 :smile: d\x9b31me \u202eflip\u202c \r\n✓ all is well \x00 [/n] \[x]"
KEPT = {"episode_id", "env", "env_config", "initial_state", "info", "status", "frame_id", "next_frame_id"}
"""Columns whose text is not replaced: keys that connect rows, and columns that are read as JSON or levels."""


def says(output: str) -> None:
    """Check that the output shows the hostile text literally; table cells may have several lines."""
    flat = "".join(output.split())
    assert all("".join(piece.split()) in flat for piece in SHOWN.split(r"\n")), output


@pytest.fixture(scope="module")
def hostile(tiny_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which all free texts hold hostile characters."""
    root = Path(shutil.copytree(tiny_store, tmp_path_factory.mktemp("hostile") / "store"))

    def poison(rows: Rows) -> None:
        for row in rows:
            for name, value in row.items():
                if isinstance(value, str) and name not in KEPT and "hash" not in name:
                    row[name] = HOSTILE
                elif name == "actions":
                    row[name] = [HOSTILE] * len(value)
            if "reject_reasons" in row:
                reason = {"name": HOSTILE, "kind": HOSTILE, "detail": HOSTILE}
                row.update(reject_reasons=[reason], accepted=False, feasible_actions=[HOSTILE], witness=[HOSTILE])

    for env in ("sokoban", "frozenlake"):
        for name in table_files(root, env):
            if name.split("/")[0] in ("episodes", "steps", "labels", "calls"):
                change_rows(root, name, poison)
    rewrite_manifest(root)
    return root


def test_tables_of_stats(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", 2000)
    says(shown("stats", hostile))
    output = shown("stats", hostile, 'select episode_id, failure_reason as "[red]x\x1b" from failures limit 2')
    says(output)
    assert r"[red]x\x1b" in output


def test_peek_and_verify(hostile: Path) -> None:
    output = shown("peek", hostile)
    says(output)
    assert output.count("✓ all is well") == output.count(r"\r\n✓ all is well") > 5
    assert "[bold red]" in shown("verify", hostile, "--workers", "1")


def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_error(HOSTILE)
    said = capsys.readouterr().err
    says(said)
    obeys_nothing(said)
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [x] text", "plain [x] text"),
        ("σ – × 漢字 \u3000 \u00a0", "σ – × 漢字 \u3000 \u00a0"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\tb\n", r"a\tb\n"),
        ("\ud800", r"\ud800"),
        ("\u2028\u2066\ufeff", r"\u2028\u2066\ufeff"),
    ],
)
def test_what_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
