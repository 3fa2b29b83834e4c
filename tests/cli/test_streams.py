"""Standard output that is no longer read, full, closed or limited to ASCII, and Ctrl-C at any moment."""

import shlex
import subprocess
from pathlib import Path

import pytest
from pivot.tests.flow_runs import CLI, PATIENCE, clean_environment, python


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env, words = clean_environment() | environment, ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env, timeout=PATIENCE)


def pivot(*words: object) -> str:
    return shlex.join([*CLI, *map(str, words)])


def test_a_reader_that_leaves_changes_no_status(tiny_store: Path) -> None:
    ended = shell(f"{pivot('stats', tiny_store)} | head -n 1")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("words", [("stats",), ("stats", "from steps", "--format", "csv"), ("--version",)])
def test_a_full_disk_behind_the_output_is_one_line(tiny_store: Path, words: tuple[str, ...]) -> None:
    command = pivot(words[0], *([tiny_store] if words[0] == "stats" else []), *words[1:])
    ended = shell(f"{command} > /dev/full")
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write the output: No space left on device\n"


def test_without_an_output_a_command_does_its_work(tiny_store: Path) -> None:
    ended = shell(f"{pivot('stats', tiny_store)} >&-")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_terminal_of_few_characters_gets_what_it_can_show(tiny_store: Path) -> None:
    rows = pivot("stats", tiny_store, "select '\u2713' as mark")
    shown = shell(rows, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0
    assert " \\u2713 " in shown.stdout
    assert shell(f"{rows} --format csv", PYTHONIOENCODING="ascii").stdout == "mark\n\u2713\n"


COMMAND = """
import os, signal, sys, threading, time
from pivot.__main__ import main

moment = sys.argv.pop(1)

def interrupt_at_the_end():
    main_thread = threading.main_thread()
    main_thread.join()
    for _ in range(1200):  # the first may come just before the main thread waits for this one, which delays it
        signal.pthread_kill(main_thread.ident, signal.SIGINT)
        time.sleep(0.05)

class Finder:
    def find_spec(name, path, target=None):
        if name == moment:
            os.kill(os.getpid(), signal.SIGINT)
        if (name, moment) == ("pivot.cli", "end"):
            threading.Thread(target=interrupt_at_the_end).start()

sys.meta_path.insert(0, Finder)
main()
"""
"""The command line, which gets Ctrl-C when it first looks for the module ``moment``, or after its last line."""


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("pivot.cli", ["verify"]),
        ("typer", ["verify"]),
        ("numpy", ["verify"]),
        pytest.param("duckdb", ["verify"], marks=pytest.mark.long),
        ("pivot.labeling.domains.frozenlake", ["verify", "--workers", "1"]),
        ("end", ["stats"]),
        pytest.param("end", ["verify"], marks=pytest.mark.long),
    ],
)
def test_ctrl_c_at_any_moment_of_a_command_is_no_traceback(tiny_store: Path, moment: str, words: list[str]) -> None:
    """Catch a traceback before the first import, within those of libraries, in plugins, and while threads end."""
    ended = python(COMMAND, moment, *words, tiny_store)
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("interrupted")
