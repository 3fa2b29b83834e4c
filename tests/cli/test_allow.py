"""Check that no command loads code that a store names, unless the user allows it by name."""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import getsource
from pathlib import Path

import gymnasium
import pivot
import polars as pl
import pytest
from pivot.cli import app
from pivot.core import plugins
from pivot.core.admission import allowed_names, allowing, missing
from pivot.core.errors import NotAllowedError, PivotError
from pivot.environments.gym import GymConfig
from pivot.environments.svg import SvgConfig
from pivot.insight.report.serve import ViewServer
from pivot.solvers.closure.game import Level
from pivot.tests.cli.command_line import commands, error_of, run
from pivot.tests.environments.lanes import Lane
from typer.main import get_command
from typer.testing import CliRunner

MODULE = "games_of_a_stranger"
SOURCE = '''"""Leaves a file when it is imported."""
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

Path(__file__).with_suffix(".ran").touch()


LANE

def fell(env, reward, info):
    return env.unwrapped.cell == -1


gymnasium.register("StrangersLane-v0", entry_point=Lane)
'''.replace("LANE", getsource(Lane))
SETTINGS = {"id": "StrangersLane-v0", "package": MODULE, "horizon": 6, "failure_modes": {"fell": f"{MODULE}:fell"}}
CONFIG = {"environments": {"gym": {"tasks": 2, "settings": SETTINGS}}, "rollouts": 4, "tasks_per_shard": 1}


@dataclass(frozen=True)
class Stranger:
    """A store of somebody else, with the module that it names."""

    store: Path
    marker: Path

    def forget(self) -> None:
        """Remove the module from the imported ones."""
        self.marker.unlink(missing_ok=True)
        sys.modules.pop(MODULE, None)
        gymnasium.registry.pop(SETTINGS["id"], None)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    folder = tmp_path_factory.mktemp("stranger")
    (folder / f"{MODULE}.py").write_text(SOURCE)
    stranger = Stranger(folder / "store", folder / f"{MODULE}.ran")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder))
        pivot.build(CONFIG, stranger.store)
        assert stranger.marker.exists()
        yield stranger


@pytest.fixture
def stranger(built: Stranger, tmp_path: Path) -> Iterator[Stranger]:
    built.forget()
    shutil.copytree(built.store, tmp_path / "store")
    yield Stranger(tmp_path / "store", built.marker)
    built.forget()


STORE, OUT = "{store}", "{out}"
WORDS = {"ENV": ["gym"], "ENV...": ["gym"], "hub:OWNER/NAME": ["hub:owner/name"], "EPISODE_ID": [], "NAME...": []}
"""Values of arguments that are not a path; all others get the store."""
FILES = {"PATH": STORE, "FILE": f"{STORE}/run.json"}
"""Values of options that are paths, by their placeholder."""
ALWAYS = {"--out": OUT, "--workers": "1", "--model": STORE}
"""Values of options in every line of a command that has them."""
NEEDY = {"build", "merge", "probe", "relabel"} | {
    f"export {kind}" for kind in ("corrections", "credit", "pairs", "privileged")
}
"""Commands that fail without the store's code."""
USEFUL = {"compare", "plot", "view", "peek", "export analyzer", "export dataset"}
"""Commands that succeed without the store's code."""


def lines() -> Iterator[list[str]]:
    """Yield command lines that put the store wherever a command takes a path."""
    yield ["build", "--out", STORE]
    for path, command in commands(get_command(app)):
        line, paths = [*path], dict[str, str]()
        for each in command.params:
            name, metavar = each.opts[0], each.metavar
            if each.param_type_name == "argument":
                line += ["{kind}"] if metavar == "KIND" else WORDS.get(metavar, [STORE])
            elif name in ALWAYS:
                line += [name, ALWAYS[name]]
            elif metavar in FILES:
                paths[name] = FILES[metavar]
        line += ["--no-open"] * (path == ("view",))
        for more in ([], *([name, value] for name, value in paths.items())):
            kinds = plugins.names("exporters") if "{kind}" in line else [""]
            if any(STORE in word for word in (*line, *more)):
                yield from ([word.replace("{kind}", kind) for word in (*line, *more)] for kind in kinds)


def name_of(line: Sequence[str]) -> str:
    """Return the name of a command, of an export with its kind."""
    return " ".join(line[:2]) if line[0] == "export" else line[0]


@pytest.mark.parametrize("line", list(lines()), ids=" ".join)
def test_no_command_runs_what_a_store_names(
    line: Sequence[str], stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catch a command that imports code which a stranger's store names, without permission."""

    def ask(server: ViewServer) -> None:
        page = server.site.content("episodes/0/0.json")
        assert page is not None
        assert b"--allow" in page

    monkeypatch.setattr(ViewServer, "serve_forever", ask)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [word.format(store=stranger.store, out=tmp_path / "out") for word in line])
    assert isinstance(result.exception, PivotError | SystemExit | None), result.output
    assert not stranger.marker.exists()
    assert MODULE not in sys.modules
    if name_of(line) in NEEDY and "--config" not in line and line[:2] != ["build", "gym"]:
        assert isinstance(result.exception, NotAllowedError)
        expected = f"{stranger.store}/run.json: gym.package names '{MODULE}', .* --allow {MODULE} "
        assert re.search(expected, str(result.exception))
    elif name_of(line) in USEFUL and not {"--config", "--png"} & {*line}:
        assert result.exit_code == 0, result.output


def test_every_kind_of_command_is_tried() -> None:
    names = {name_of(line) for line in lines()}
    assert names >= NEEDY | USEFUL | {"verify", "import", "train", "evaluate", "benchmark"}


def test_commands_say_what_they_leave_out(stranger: Stranger, tmp_path: Path) -> None:
    """The files are still checked: a changed one is reported, too."""
    report = pivot.verify(stranger.store)
    assert [each for each in report.problems if "not derived again" in each and f"--allow {MODULE}" in each]
    assert "needed turns and plans are left out" in run("view", stranger.store, "--out", tmp_path / "report")
    with (stranger.store / "steps/gym/00000.parquet").open("ab") as file:
        file.write(b"more")
    assert len(pivot.verify(stranger.store).problems) > len(report.problems) == 1
    assert not stranger.marker.exists()


STEPS = (
    ["build", "--out", STORE, "--workers", "2"],
    ["probe", STORE, "--resamples", "1", "--workers", "1"],
    ["export", "corrections", STORE, "--out", OUT, "--workers", "1"],
    ["verify", STORE, "--export", OUT, "--workers", "2"],
)


def test_every_process_loads_allowed_code(stranger: Stranger, tmp_path: Path) -> None:
    """Catch a command whose workers do not get the permission; the build labels all again."""
    before = facts(stranger.store)
    (stranger.store / "manifest.json").unlink()
    for name in ("labels", "dataset", ".receipts/export-v1", ".receipts/label-v1"):
        shutil.rmtree(stranger.store / name)
    for line in STEPS:
        stranger.forget()
        run(*(word.format(store=stranger.store, out=tmp_path / "out") for word in line), "--allow", MODULE)
        assert stranger.marker.exists(), line
        assert facts(stranger.store).equals(before)
    assert before.height > 0 and before["accepted"].all()


def facts(store: Path) -> pl.DataFrame:
    """Return the labels of a store."""
    names = ("episode_id", "pivot_step", "failure_mode", "certificate", "witness", "feasible_actions", "accepted")
    return pivot.load_store(store).labels.select(*names).sort("episode_id").collect()


# Permissions


def test_permission_ends_with_the_call(stranger: Stranger, tmp_path: Path) -> None:
    """A later call does not inherit it, even with the environment already made."""
    pivot.relabel(stranger.store, {}, allow=MODULE)
    assert allowed_names() == ()
    with pytest.raises(NotAllowedError, match="would be loaded"):
        pivot.relabel(stranger.store, {})
    run("export", "credit", stranger.store, "--out", tmp_path / "out", "--allow", MODULE)
    assert allowed_names() == ()


def test_options_and_files_of_the_user_are_permission(stranger: Stranger, tmp_path: Path) -> None:
    """A copy of a store's run.json under any name does not allow code; a config file of the user does."""
    record, own = tmp_path / "record.json", tmp_path / "own.json"
    shutil.copy(stranger.store / "run.json", record)
    own.write_text(json.dumps(CONFIG))
    line = ["build", "--out", tmp_path / "new", "--dry-run"]
    assert str(record) in str(error_of(*line, "--config", record))
    assert not stranger.marker.exists()
    for words in (["--config", own], ["--config", record, "--set", f"gym.package={MODULE}"]):
        assert "nothing was written" in " ".join(run(*line, *words).split())
    assert allowed_names() == ()


def test_levels_are_no_permission() -> None:
    """Neither is an id that only foreign code registers."""
    for settings in ({"package": "os"}, {"id": "Strangers-v0"}, {"failure_modes": {"fell": "os:fell"}}):
        gymnasium.register("Strangers-v0", entry_point="os:nothing")
        level = Level(**{"id": "CartPole-v1", "seed": 0, "actions": {"a": 0}, **settings})
        with pytest.raises(NotAllowedError, match="names 'os'"):
            pivot.certify("gym", level.text(), ["a"], 5)
    gymnasium.registry.pop("Strangers-v0")


def test_settings_name_their_code() -> None:
    assert GymConfig(id="CartPole-v1").code == GymConfig(id="MiniGrid-Empty-5x5-v0").code == GymConfig().code == {}
    expected = {"my.games": "gym.package", "modes": "gym.failure_modes"}
    assert GymConfig(package="my.games", failure_modes={"fell": "modes:fell"}).code == expected
    assert SvgConfig().code == SvgConfig(dino_model="models/mine").code == {}
    learned = SvgConfig(scorer="dino+dreamsim", dino_model="models/mine")
    assert learned.code == {"models/mine": "svg.dino_model"}
    with pytest.raises(NotAllowedError, match=r"svg\.dino_model names 'models/mine'"):
        learned.make_scorer()


def test_a_package_name_allows_its_submodules() -> None:
    with allowing(["my", "modes"]):
        assert missing({"my.games": "", "my": "", "mystery": "", "modes": ""}) == {"mystery": ""}
