"""Check the Python interface: public functions, cheap imports, and helpful errors."""

import ast
import subprocess
import sys
import textwrap
from inspect import isfunction
from pathlib import Path
from typing import Any

import pivot
import polars as pl
import pytest
from pivot.core.errors import CertifyError, ConfigError, GenerationError, PluginError, StoreError
from pivot.datasets.store.config import make_config
from pivot.tests.flow_runs import clean_environment, config_of, fingerprint

ROOM = "######\n#@$ .#\n######"
LAKE = "SFFF\nFHFH\nFFFH\nHFFG"


def _imported_by(code: str) -> set[str]:
    """Return the top-level modules of a fresh interpreter after running ``code``."""
    show = "import sys; sys.stdout.write(' '.join(sys.modules))"
    command = [sys.executable, "-c", f"{code}; {show}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment())
    return {name.split(".")[0] for name in done.stdout.split()}


HEAVY = {"prefect", "polars", "numba", "numpy", "pyarrow", "duckdb", "PIL", "cv2", "networkx", "pydantic", "gymnasium"}


def test_importing_the_package_is_cheap() -> None:
    assert not HEAVY & _imported_by("import pivot; pivot.__version__, pivot.PivotError")


def test_a_spawned_process_gets_nothing_from_the_main_module() -> None:
    assert not (HEAVY | {"typer"}) & _imported_by("import pivot.__main__")


def test_the_command_line_does_not_wait_for_prefect() -> None:
    assert "prefect" not in _imported_by("from pivot.cli import main")


def test_a_platform_without_the_locks_of_files_is_refused_by_name() -> None:
    script = "import sys; sys.platform = 'win32'; import pivot"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ImportError: PIVOT runs on Linux; on Windows it needs WSL 2" in ended.stderr


def test_every_public_name_is_there_and_documented() -> None:
    assert set(pivot.__all__) <= set(dir(pivot))
    for name in pivot.__all__:
        part = getattr(pivot, name)
        assert part is not None
        if isfunction(part):
            assert part.__doc__
            assert "Raises:" in part.__doc__


def test_types_and_lazy_names_are_the_same_list() -> None:
    imported = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(Path(pivot.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "core.lazy")
        for alias in node.names
    }
    assert imported == set(pivot.__all__)


def test_a_misspelt_name_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="no attribute 'certfy'; did you mean 'certify'"):
        pivot.certfy  # noqa: B018 - the access is the test
    misspelt: dict[str, Any] = {"worker": 2}
    with pytest.raises(TypeError, match="no parameter 'worker'; did you mean 'workers'"):
        pivot.build({}, tmp_path / "x", **misspelt)
    for function in (pivot.verify, pivot.probe):
        with pytest.raises(TypeError, match="no parameter 'worker'; did you mean 'workers'"):
            function(tmp_path / "x", **misspelt)


def test_the_example_of_the_module_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = textwrap.dedent((pivot.__doc__ or "").split("::\n")[1].split("\n``")[0])
    names: dict[str, Any] = {}
    exec(compile(example, "example", "exec"), names)
    assert names["verdict"].pivot_step == 2
    assert names["result"].environments["sokoban"]["episodes"] == 8
    assert names["report"].holds and names["report"].checked
    assert names["modes"].height


# certify


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        (("chess", ROOM, ["up"], 9), PluginError, "unknown solver 'chess'; registered: frozenlake, gym, navigation"),
        (("sokoban", ROOM, ["right", "right"], 9), CertifyError, "not_a_failure"),
        (("sokoban", ROOM, ["jump"], 9), CertifyError, "unknown action 'jump' at step 0; use one of up, down"),
    ],
)
def test_uncertifiable_episodes_have_a_reason(arguments: tuple[Any, ...], error: type[Exception], named: str) -> None:
    with pytest.raises(error) as caught:
        pivot.certify(*arguments)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_of_the_solver() -> None:
    with pytest.raises(CertifyError, match="solver_limit"):
        pivot.certify("sokoban", ROOM, ["left"], 9, max_states=1)
    with pytest.raises(CertifyError, match="setting of solver sokoban: unknown setting boxes"):
        pivot.certify("sokoban", ROOM, ["left"], 9, boxes=3)


# build and load_store


def test_build_reports_and_load_store_reads(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []

    class Recorder(pivot.Reporter):
        def start(self, stage: str, total: int) -> None:
            seen.append(("start", stage, total))

        def advance(self, stage: str, amount: int) -> None:
            seen.append(("advance", stage, amount))

        def finish(self, stage: str) -> None:
            seen.append(("finish", stage, 0))

    result = pivot.build(config_of(2), str(tmp_path / "store"), reporter=Recorder())
    stages = ["plan", "rollout", "label", "export"]
    assert [stage for what, stage, _ in seen if what == "start"] == stages
    assert [stage for what, stage, _ in seen if what == "finish"] == stages
    for stage in stages:
        total = next(number for what, name, number in seen if (what, name) == ("start", stage))
        assert total == sum(number for what, name, number in seen if (what, name) == ("advance", stage)) == 8

    frames = pivot.load_store(str(tmp_path / "store"))
    counts = result.environments["sokoban"]
    assert all(isinstance(getattr(frames, name), pl.LazyFrame) for name in ("episodes", "steps", "frames", "prompts"))
    assert len(frames.episodes.collect()) == counts["episodes"] == 8
    assert frames.episodes.filter("failed").collect().height == counts["failed"] == counts["labels"]
    assert frames.labels.filter("accepted").collect().height == counts["accepted"]
    assert counts["succeeded"] + counts["failed"] == 8


def test_build_takes_a_run_config_or_plain_data(tmp_path: Path) -> None:
    pivot.build(make_config(config_of(1)), tmp_path / "typed")
    pivot.build(config_of(1), tmp_path / "plain")
    assert fingerprint(tmp_path / "typed") == fingerprint(tmp_path / "plain")


@pytest.mark.parametrize(
    ("config", "error", "named"),
    [
        (config_of(1, colour="red"), ConfigError, "unknown config field colour; known: environments, rollouts, seed"),
        (
            config_of({"chess": 1}),
            PluginError,
            "unknown environment 'chess'; registered: frozenlake, gym, navigation, primitiveskill, sokoban",
        ),
        (config_of(1, policy={"name": "scripted", "options": {"x": 1}}), ConfigError, "scripted"),
        (
            {"environments": {"sokoban": {"tasks": 1, "settings": {"boxs": 2}}}},
            ConfigError,
            "unknown setting sokoban.boxs; did you mean 'boxes'? known:",
        ),
        ({"environments": {"frozenlake": {"tasks": 400, "settings": {"size": 2}}}}, GenerationError, "frozenlake"),
    ],
)
def test_a_build_that_is_refused_gives_the_reason_and_leaves_no_store(
    tmp_path: Path, config: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        pivot.build(config, tmp_path / "store")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "store" / "manifest.json").exists()
    with pytest.raises(StoreError, match="is not a PIVOT store"):
        pivot.load_store(tmp_path / "store")


# The other commands


def test_a_store_is_relabelled_probed_and_reported(tmp_path: Path) -> None:
    root = tmp_path / "store"
    pivot.build(config_of({"sokoban": 4}), root)
    assert pivot.relabel(root, {"split": "episode"}).environments["sokoban"]["episodes"] == 16
    assert pivot.probe(root, {"arms": ["no_hint"]}).retries
    assert pivot.verify(root).holds
    assert pivot.report(root, tmp_path / "site", limit=2).record["count"] == 2
    rows = pivot.query(root, "select count(*) as n from episodes")
    assert rows["n"].to_list() == [16]
    assert pivot.stats(root)["modes"]
    with pytest.raises(ConfigError, match="unknown label setting splt"):
        pivot.relabel(root, {"splt": "episode"})


def test_a_large_store_gets_fitting_shards_as_on_the_command_line(tmp_path: Path) -> None:
    from pivot.flows.pipeline import with_shards

    large = {"environments": {"sokoban": {"tasks": 5000}}}
    assert with_shards(make_config(large), tmp_path / "new").tasks_per_shard == 32
    assert with_shards(make_config({**large, "tasks_per_shard": 16}), tmp_path / "new").tasks_per_shard == 16
