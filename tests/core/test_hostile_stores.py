"""Commands on hostile stores, as root and as nobody: nothing outside changes, nothing hangs, one message each."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pivot.tests.core.hostile_makers import digest, make_canary
from pivot.tests.core.hostile_stores import HOSTILE
from pivot.tests.stores import copy_store

LIMIT, MEMORY = 60.0, 2048.0
"""Most seconds and MB of a command."""
READERS = {
    "verify": ["verify", "{store}", "--workers", "1"],
    "stats": ["stats", "{store}"],
    "sql": ["stats", "{store}", "select count(*), max(episode_id) from episodes"],
    "peek": ["peek", "{store}"],
    "picture": ["peek", "{store}", "--png", "{home}/x.png"],
    "load_store": ["load_store", "{store}"],
    "site": ["view", "{store}", "--out", "{home}/site"],
    "view": ["view", "{store}", "--no-open"],
    "compare": ["compare", "{honest}", "{store}"],
    "plot": ["plot", "{store}", "--out", "{home}/plots"],
    "probe --show": ["probe", "{store}", "--show"],
    "merge": ["merge", "{store}", "--out", "{home}/merged", "--workers", "1"],
    "push": ["push", "{store}", "hub:a/b", "--dry-run"],
    "baselines": ["evaluate", "baselines", "{store}", "--no-learned"],
}
WRITERS = {
    "relabel": ["relabel", "{store}", "--workers", "1"],
    "grow": ["build", "--tasks", "5", "--out", "{store}", "--workers", "1"],
    "probe": ["probe", "{store}", "--resamples", "1", "--workers", "1"],
}
SAMPLE = ("verify", "stats", "peek", "load_store", "relabel")
CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
KEPT = ("verify", "stats", "sql", "peek", "load_store", "compare", "push")
"""Commands after which the store itself must be as it was."""


@dataclass
class Range:
    """A folder without access for others, with a valid store, and a process that runs commands."""

    folder: Path
    runner: "subprocess.Popen[str]"

    def run(self, argv: list[str], store: Path, nobody: bool) -> dict[str, Any]:
        """Run one command; `home` is a new folder of the user."""
        home = Path(tempfile.mkdtemp(dir=self.folder))
        home.chmod(0o777)
        words = [word.format(store=store, honest=self.folder / "honest", home=home) for word in argv]
        interrupt = 8 if argv[0] == "view" and "--out" not in argv else None
        job = {"argv": words, "nobody": nobody, "limit": LIMIT, "home": str(home), "interrupt": interrupt}
        assert self.runner.stdin and self.runner.stdout
        self.runner.stdin.write(json.dumps(job) + "\n")
        self.runner.stdin.flush()
        answer = json.loads(self.runner.stdout.readline())
        shutil.rmtree(home, ignore_errors=True)
        return answer


@pytest.fixture(scope="module")
def ground(tiny_sokoban: Path) -> Iterator[Range]:
    """A valid store that all may read, and the runner."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(tiny_sokoban, folder / "honest")
    command = [*_opened(folder), sys.executable, "-m", "pivot.tests.core.hostile_runner"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        yield Range(folder, runner)
        assert runner.stdin
        runner.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def tiny_sokoban(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four levels of four rollouts in two shards."""
    import pivot

    root = tmp_path_factory.mktemp("hostile") / "honest"
    pivot.build({"environments": {"sokoban": {"tasks": 4, "settings": {}}}, "rollouts": 4, "tasks_per_shard": 2}, root)
    return root


def _opened(folder: Path) -> list[str]:
    """Return a command prefix so that child processes can read Python as nobody, even from root's home.

    The process gets mounts of its own, in which an empty folder with Python alone covers the closed one.
    """
    python = Path(sys.base_prefix).resolve()
    closed = [each for each in reversed(python.parents) if not each.stat().st_mode & 1]
    if not closed:
        return []
    (folder / "python").mkdir()
    steps = (
        f"mount --bind {python} {folder}/python; mount -t tmpfs -o mode=755 none {closed[0]}; mkdir -p {python}; "
        f'mount --bind {folder}/python {python}; umount {folder}/python; exec "$@"'
    )
    return ["unshare", "--mount", "sh", "-ec", steps, "sh"]


def _give(store: Path) -> None:
    """Give a store to nobody; hard links to outside stay root's."""
    for _, folders, files, handle in os.fwalk(store):
        os.chown(handle, 65534, 65534)
        for name in folders + files:
            state = os.stat(name, dir_fd=handle, follow_symlinks=False)
            if not stat.S_ISREG(state.st_mode) or state.st_nlink == 1:
                os.chown(name, 65534, 65534, dir_fd=handle, follow_symlinks=False)


def _state(store: Path) -> dict[str, tuple[int, ...]]:
    """Return mode, size and time of everything in a store; of its lock without the time."""
    states: dict[str, tuple[int, ...]] = {}
    for folder, folders, files, handle in os.fwalk(store):
        for name in folders + files:
            state = os.stat(name, dir_fd=handle, follow_symlinks=False)
            states[f"{folder}/{name}"] = (state.st_mode, state.st_size, state.st_mtime_ns if name != ".lock" else 0)
    return states


def faults(command: str, refused: bool, answer: dict[str, Any]) -> list[str]:
    """Return the problems of how a command ended."""
    status, out, err = answer["status"], answer["out"], answer["err"]
    if status is None:
        return [f"ran past {LIMIT:.0f} s: {err[-200:]!r}"]
    problems: list[str] = []
    if status < 0 or status == 99:
        problems.append(f"ended by {status}")
    if answer["memory"] > MEMORY:
        problems.append(f"took {answer['memory']:.0f} MB")
    if "Traceback (most recent" in err + out:
        problems.append(f"traceback: {err[-300:]!r}")
    if control := CONTROLS.search(out + err):
        problems.append(f"control character {control.group()!r}: {(out + err)[max(control.start() - 60, 0) :][:120]!r}")
    errors = [line for line in err.splitlines() if line.startswith("error")]
    if status and command != "view" and len(errors) != 1 and not (command == "verify" and out + err):
        problems.append(f"{len(errors)} messages: {err[-300:]!r}")
    if len(err) > 20_000:
        problems.append(f"a message of {len(err)} letters")
    if refused and command == "verify" and status == 0:
        problems.append(f"verify holds: {out[-200:]!r}")
    return problems


def attack(ground: Range, name: str, nobody: bool, commands: dict[str, list[str]]) -> list[str]:
    """Run commands on one hostile store; return all problems of their ends and their changes."""
    hostile, problems = HOSTILE[name], list[str]()
    store, outside = ground.folder / "store", ground.folder / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    make_canary(outside, ground.folder / "honest")
    for path in [outside, *outside.rglob("*")]:
        path.chmod(0o777 if path.is_dir() else 0o666)  # nobody could change it
    fresh = False
    for command, argv in commands.items():
        if not fresh or command in WRITERS:
            copy_store(ground.folder / "honest", store)
            hostile.make(store, outside)
            _give(store)
        fresh = command not in WRITERS
        before, own = digest(outside), _state(store)
        answer = ground.run(argv, store, nobody)
        problems += [f"{command}: {fault}" for fault in faults(command, hostile.refused, answer)]
        if digest(outside) != before:
            problems.append(f"{command}: changed the folder outside")
        if command in KEPT and _state(store) != own:
            changed = {path for path, _ in _state(store).items() ^ own.items()}
            problems.append(f"{command}: changed the store: {sorted(changed)[:3]}")
    shutil.rmtree(store)
    return problems


CHEAP = (
    "link .lock out",
    "link episodes/sokoban out",
    "pipe manifest.json",
    "journal moves out",
    "deep manifest",
    "controls in ids",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody takes root")
@pytest.mark.parametrize("name", CHEAP)
def test_few(ground: Range, name: str) -> None:
    """Catch a reader that follows a link, waits for a pipe, or prints control characters; WHAT=hostile has the rest."""
    commands = {command: READERS[command] for command in ("verify", "load_store")}
    assert not attack(ground, name, True, commands)


@pytest.mark.hostile
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody takes root")
@pytest.mark.parametrize("nobody", [False, True], ids=["root", "nobody"])
@pytest.mark.parametrize("name", HOSTILE)
def test_all(ground: Range, name: str, nobody: bool) -> None:
    assert not attack(ground, name, nobody, READERS | WRITERS)
