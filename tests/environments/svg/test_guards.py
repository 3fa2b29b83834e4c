"""Attack code inside a real worker: what it finds there, as root and as nobody, and what it leaves behind."""

import os
from pathlib import Path

import pytest
from pivot.core.errors import SimulatorError
from pivot.environments.svg.sandbox import guards, process
from pivot.environments.svg.sandbox.pool import Pool
from pivot.environments.svg.sandbox.process import MEMORY_BYTES, Worker
from pivot.environments.svg.sandbox.raster import Outcome
from pivot.tests.environments.svg.attack import ATTACKS, order, rights, start
from pivot.tests.environments.svg.drawing import draw_alone, same
from pivot.tests.environments.svg.hostile import writing

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="Linux: reads limits from /proc")

ROOT = os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="only root can become somebody else: run the tests as root too")
GOOD = writing()
KERNEL = {"seccomp", "landlock"}
NO_FILES = {"read", "write", "create", "folder", "socket", "local socket", "pair", "pipe", "copy", "memory file"}
"""Rights that a limit of zero descriptors takes away."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that everybody may read and write, with something to read, rename and remove."""
    for path in (tmp_path, *list(tmp_path.parents)[:3]):
        path.chmod(path.stat().st_mode | 0o755)
    tmp_path.chmod(0o777)
    for name in ("there", "rename", "remove"):
        (tmp_path / name).write_text("x")
        (tmp_path / name).chmod(0o777)
    return tmp_path


def what_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[set[str], set[str]]:
    """Return the guards of a worker, and the rights that code in it still has."""
    monkeypatch.setattr(process, "_START", start(**options))
    with Worker() as worker:
        assert worker.draw(GOOD).outcome is Outcome.OK
        answer = worker.draw(order(f"rights:{folder}"))
        assert answer.outcome is Outcome.RENDER_ERROR
        left = answer.detail.partition("still there: ")[2]
        assert worker.draw(GOOD).outcome is Outcome.OK
        return set(worker.guards), set(filter(None, left.split(", ")))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="as it is"),
        pytest.param({"nobody": True}, id="started as nobody", marks=only_root),
        pytest.param({"without": ("nobody",)}, id="root for ever", marks=only_root),
    ],
)
def test_nothing_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]) -> None:
    active, left = what_is_left(folder, monkeypatch, **options)
    if not active >= KERNEL:
        pytest.skip(f"this kernel has only {sorted(active)}")
    assert left == set()
    assert {path.name for path in folder.iterdir()} == {"there", "rename", "remove"}


@only_root
def test_each_guard_takes_what_the_documents_say(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SECURITY.md says what remains where the kernel has less; and the test above can fail."""
    active, left = what_is_left(folder, monkeypatch, without=("seccomp", "landlock", "nobody"))
    assert active == {"limits"}
    differs = {"ring", "limits"}  # not every kernel and container lets root have them
    assert left - differs == set(rights(folder)) - NO_FILES - {"much memory"} - differs
    for name in ("there", "rename", "remove"):
        (folder / name).write_text("x")
    for leftover in ("made", "link", "symbolic", "renamed"):
        path = folder / leftover
        path.rmdir() if path.is_dir() else path.unlink()

    active, left = what_is_left(folder, monkeypatch, without=("seccomp", "landlock"))
    assert active == {"limits", "nobody"}
    assert left >= {"remove", "rename", "make folder", "look", "program memory"}, "files of all users, by name"
    assert not left & {"fork", "thread", "signal", "other memory", "root", "limits", "mode"}


@only_root
@pytest.mark.parametrize("kept", ["seccomp", "landlock"])
def test_each_guard_of_the_kernel_keeps_files_alone(folder: Path, monkeypatch: pytest.MonkeyPatch, kept: str) -> None:
    active, left = what_is_left(folder, monkeypatch, without=tuple((KERNEL | {"nobody"}) - {kept}))
    if kept not in active:
        pytest.skip(f"this kernel has no {kept}")
    assert not left & {"remove", "rename", "make folder", "link", "symbolic link", "truncate", "execute"}
    assert not left & NO_FILES
    if kept == "seccomp":
        assert left == set()


def test_a_running_worker_has_these_limits() -> None:
    with Worker() as worker:
        worker.draw(GOOD)
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{worker.pid}/status").read_text().splitlines())
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        rows = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()[1:]}
        assert rows["Max open files"] == ["0", "0"]
        assert rows["Max address space"] == [str(MEMORY_BYTES)] * 2
        assert rows["Max processes"] == rows["Max file size"] == rows["Max core file size"] == ["0", "0"]
        assert status["Threads"].strip() == "1"
        if "nobody" in worker.guards:
            assert status["Uid"].split() == status["Gid"].split() == [str(guards.NOBODY)] * 4
            assert status["Groups"].strip() == ""
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        if "seccomp" in worker.guards:
            assert status["Seccomp"].strip() == "2"
        if ROOT:
            assert len(list(Path(f"/proc/{worker.pid}/fd").iterdir())) == 3
            assert b"HOME=" not in Path(f"/proc/{worker.pid}/environ").read_bytes(), "secrets of the parent stay there"


def test_system_calls_have_one_number_each() -> None:
    for column in range(2):
        numbers = [pair[column] for pair in guards.CALLS.values()]
        assert len(set(numbers) | set(guards._MAPPING_CALLS[column])) == len(numbers) + 2


@pytest.mark.parametrize("attack", ATTACKS)
def test_after_an_attack_text_is_drawn_as_before(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacker gets some outcome for its own document, or none; the next document gets the right one."""
    monkeypatch.setattr(process, "_START", start())
    expected = draw_alone(GOOD)
    with Pool(1) as workers:
        workers.draw(GOOD)
        if attack == "no timer":
            with monkeypatch.context() as patch:
                patch.setattr(process, "WALL_SECONDS", 0.5)
                with pytest.raises(SimulatorError):
                    workers.draw(order(attack))
        else:
            raster = workers.draw(order(attack))
            assert (raster.pixels is None) == (raster.outcome is not Outcome.OK)
        assert same(workers.draw(GOOD).pixels, expected)
