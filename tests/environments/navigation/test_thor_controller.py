"""AI2-THOR's real controller in its child process, over a program that stands in for Unity: start, death, download."""

import hashlib
import io
import json
import logging
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ai2thor", reason="ai2thor is not installed; make dev installs it")

from pivot.core.errors import ConfigError, LevelError, SimulatorError
from pivot.environments.navigation.thor.process import DOWNLOAD_SECONDS, START_SECONDS, STEP_SECONDS, ThorProcess
from pivot.environments.navigation.thor.worker import EXECUTABLE, SETTINGS
from pivot.environments.navigation.thor.world import ThorWorld
from pivot.environments.simulators import Answer
from pivot.tests.environments.navigation.test_thor import START
from pivot.tests.flow_runs import Handler, listening

FAKE_UNITY = Path(__file__).with_name("fake_unity.py")
MODULES = '''
"""What AI2-THOR imports and a run without a display never uses; and a Vulkan driver."""
import ctypes.util, sys
from unittest.mock import MagicMock
names = "aws_requests_auth.boto_utils flask progressbar werkzeug.http werkzeug.serving Xlib.display"
for name in [name.split(".")[0] for name in names.split()] + names.split():
    sys.modules[name] = MagicMock()
ctypes.util.find_library = lambda name: f"lib{name}.so.1"
'''
Unity = Callable[[str], Path]


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without a build, no display, no network."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/sitecustomize.py").write_text(MODULES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY", "DISPLAY", "CUDA_VISIBLE_DEVICES", EXECUTABLE):
        monkeypatch.delenv(name, raising=False)
    for name in (START_SECONDS, STEP_SECONDS, DOWNLOAD_SECONDS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ThorWorld, "has_started", False)
    return tmp_path


@pytest.fixture
def unity(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Unity:
    """Make an executable that misbehaves as planned, in a folder with unusual characters in its name."""

    def make(plan: str) -> Path:
        path = machine / "my builds" / "thor's"
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{FAKE_UNITY}" "{machine}" "{plan}" "$@"\n')
        path.chmod(0o755)
        monkeypatch.setenv(EXECUTABLE, str(path))
        return path

    return make


def about(machine: Path, number: int = 0) -> Any:
    return json.loads((machine / f"unity-{number}.json").read_text())


def gone(machine: Path, number: int = 0) -> bool:
    """Whether a program has ended, or ends within seconds; its entry may stay until the system looks at it."""
    for _ in range(12_000):
        try:
            if psutil.Process(about(machine, number)["pid"]).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_a_build_of_ones_own_runs_without_a_display(
    machine: Path, unity: Unity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a controller that needs a display, forgets an episode, or leaves a hanging Unity behind."""
    unity("Reset=slow,LookDown=hangs")
    monkeypatch.setenv(STEP_SECONDS, "4")  # a change of the scene may exceed it
    world = ThorWorld()
    world.load(START)
    assert world.state == START
    assert world.act("moveahead")
    assert world.state.pose.x == pytest.approx(START.pose.x + 0.5)
    assert world.draw()[:, 0, 0].tolist() == [*reversed(range(255))]  # Unity sends rows bottom up
    with pytest.raises(LevelError, match="FloorPlan99"):
        world.load(START.__class__("thor", "FloorPlan99", START.pose, START.target))
    started = about(machine)
    assert started["display"] is None
    assert started["arguments"][-4:] == ["-screen-width", "255", "-screen-height", "255"]
    actions = [json.loads(line) for line in (machine / "actions-0.jsonl").read_text().splitlines()]
    names = [action["action"] for action in actions]
    assert "ChangeQuality" in names  # as on AI2-THOR's platform without a display
    assert actions[names.index("Initialize")].items() >= SETTINGS.items()

    assert world.act("lookdown")  # hangs; the next process repeats the episode
    assert gone(machine)
    assert world.state.pose.x == pytest.approx(START.pose.x + 0.5)
    world.close()
    assert gone(machine, 1)


@pytest.mark.parametrize("how", ["dies", pytest.param("aborts", marks=pytest.mark.long)])
def test_a_dead_unity_is_noticed_at_once(
    machine: Path, unity: Unity, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before the time-out, and AI2-THOR starts no further process."""
    unity(f"MoveAhead={how}")
    monkeypatch.setenv(STEP_SECONDS, "600")
    process = ThorProcess()
    begin = time.monotonic()
    with pytest.raises(SimulatorError, match=r"failed at 'MoveAhead': .*Unity process has exited"):
        process.step("MoveAhead", moveMagnitude=0.5)
    assert time.monotonic() - begin < 300  # a step has 600
    assert not (machine / "unity-1.json").exists()


@pytest.mark.parametrize("how", ["dies", "late"])
def test_a_unity_that_never_comes_up_is_noticed_at_once(unity: Unity, how: str) -> None:
    """The check ends long before 600 seconds, though a Unity that dies late leaves AI2-THOR waiting for its pipe."""
    unity(f"boot={how}")
    begin = time.monotonic()
    said = "Vulkan is properly configured" if how == "dies" else "Unity ended with status -9"
    with pytest.raises(ConfigError, match=f"'start'.*{said}.*AI2-THOR needs a GPU with Vulkan"):
        ThorWorld().check()
    assert time.monotonic() - begin < 300


def test_without_a_network_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=rf"connect this machine to the network, or set {EXECUTABLE}="):
        ThorWorld().check()
    monkeypatch.setenv(EXECUTABLE, "/no/such/file")
    with pytest.raises(ConfigError, match=rf"{EXECUTABLE} is '/no/such/file', expected an executable file"):
        ThorWorld().check()


def test_without_the_package_it_says_what_to_install(machine: Path) -> None:
    (machine / "modules/ai2thor.py").write_text("raise ImportError('there is none')\n")
    with pytest.raises(ConfigError, match=r"pip install 'pivot-vlm\[thor\]'"):
        ThorWorld().check()


@pytest.fixture
def bucket(machine: Path, unity: Unity, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serve the files that AI2-THOR downloads, behind a proxy."""
    from ai2thor._builds import COMMIT_ID

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as packed:
        packed.write(unity(""), f"thor-CloudRendering-{COMMIT_ID}")
        packed.writestr("metadata.json", '{"server_types": ["FIFO", "WSGI"]}')
    files = {".zip": archive.getvalue(), ".sha256": hashlib.sha256(archive.getvalue()).hexdigest().encode()}
    shutil.rmtree(machine / "my builds")
    monkeypatch.delenv(EXECUTABLE)

    class Bucket(Handler):
        def answer(self) -> None:
            self.reply(200, files[os.path.splitext(self.path)[1]])  # noqa: PTH122

    with listening(Bucket) as url:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("HTTP_PROXY")
        yield


@pytest.mark.usefixtures("bucket")
def test_a_download_has_its_own_deadline(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    limits: list[tuple[str, float]] = []
    request = ThorProcess._request

    def recorded(self: ThorProcess, requests: Answer, limit: float) -> tuple[Answer, bytes]:
        limits.append((requests["do"], limit))
        return request(self, requests, limit)

    monkeypatch.setattr(ThorProcess, "_request", recorded)
    with caplog.at_level(logging.WARNING):
        assert "draws 255x255 frames" in ThorWorld().check()
    assert limits == [("find", 600), ("download", 7200), ("start", 600), ("step", 60)]
    assert "downloading AI2-THOR's Unity build" in caplog.text
