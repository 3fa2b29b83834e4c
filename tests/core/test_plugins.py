"""Check that plugins are found by name, and that errors name the package and the reason."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pivot.core import plugins
from pivot.core.blame import blamed
from pivot.core.errors import PluginError
from pivot.core.plugins import Settings
from pivot.labeling.base import Draft, FailedEpisode, Filter, Objection
from pivot.rollouts.parser import visible_span
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Solver


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """Entry points that replace the installed ones."""
    points: list[EntryPoint] = []

    def clear() -> None:
        plugins.registered.cache_clear()
        plugins.load.cache_clear()

    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])
    clear()
    yield points
    clear()


def point(value: str, name: str = "toy") -> EntryPoint:
    return EntryPoint(name=name, value=value, group="pivot.environments")


def test_what_is_part_of_pivot_fits_its_contract() -> None:
    for group in plugins.GROUPS:
        for name in (name for name in plugins.names(group) if plugins.is_ours(group, name)):
            assert plugins.misfit(group, name, plugins.load(group, name)) is None, (group, name)


def test_a_third_party_environment_is_found(registered: list[EntryPoint]) -> None:
    registered += [point("pivot.environments.svg:SvgEnv"), point("json:dumps", "another")]
    assert plugins.names("environments") == ["another", "toy"]
    assert plugins.load("environments", "toy").profile.name == "svg"


def test_a_name_registered_twice_is_reported(registered: list[EntryPoint]) -> None:
    registered += [point("pivot.environments.svg:SvgEnv"), point("json:dumps")]
    with pytest.raises(
        PluginError, match=r"environment 'toy' .* is registered a second time \(.*\), expected each name"
    ):
        plugins.load("environments", "toy")
    registered[1:] = registered[:1]  # an editable install lists its entry points twice
    plugins.registered.cache_clear()
    assert plugins.load("environments", "toy").profile.name == "svg"


def test_an_error_inside_a_plugin_is_one_line_with_its_name(
    registered: list[EntryPoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toys.py").write_text("def call(function, value):\n    return function(value)\n")
    monkeypatch.syspath_prepend(tmp_path)
    toys = import_module("toys")
    registered.append(point("toys:Toy"))
    with pytest.raises(ValueError, match="Expecting") as caught:
        toys.call(json.loads, "{")
    message = blamed(caught.value)
    start = "environment 'toy' (toys:Toy, from an unknown distribution) failed with JSONDecodeError: "
    assert message is not None and message.startswith(start)
    assert message.endswith("toys.py:2; fix or uninstall that package") and "\n" not in message
    with ProcessPoolExecutor(1) as pool, pytest.raises(ValueError, match="Expecting") as caught:
        pool.submit(toys.call, json.loads, "{").result()
    assert blamed(caught.value) == message
    with pytest.raises(AttributeError) as ours:
        toys.call(visible_span, None)
    assert blamed(ours.value) is None


class _Undeclared(Filter):
    name: ClassVar[str] = "undeclared"

    def check(self, episode: FailedEpisode, draft: Draft) -> Objection | None: ...


class _Half(Solver):
    name: ClassVar[str] = "half"


@pytest.mark.parametrize(
    ("group", "value", "problem"),
    [
        ("environments", "json:loads", "expected a subclass of pivot.environments.base.PivotEnv"),
        ("solvers", f"{__name__}:_Half", "it does not define certify of pivot.solvers.base.Solver"),
        ("filters", f"{__name__}:_Undeclared", "it declares no config_type"),
        ("prompts", "json:loads", "expected an instance of pivot.environments.turns.StudentPrompt"),
    ],
)
def test_what_breaks_its_contract_is_refused_at_the_door(
    registered: list[EntryPoint], group: str, value: str, problem: str
) -> None:
    owned = EntryPoint(name="toy", value=value, group=f"pivot.{group}")
    vars(owned)["dist"] = SimpleNamespace(name="toy-dist")
    registered.append(owned)
    with pytest.raises(PluginError) as caught:
        plugins.load(group, "toy")
    message = str(caught.value)
    assert f"'toy' ({value}, from toy-dist) does not fit the group pivot.{group}: " in message
    assert problem in message and message.endswith("fix or uninstall that package")


def test_a_constructors_own_bug_stays_a_traceback() -> None:
    class Buggy(ScriptedPolicy):
        def __init__(self, settings: Settings | None = None, **values: Any) -> None:
            raise TypeError("a bug of the plugin")

    with pytest.raises(TypeError, match="a bug of the plugin"):
        Buggy()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module_anywhere:Env", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("json:NoSuchName", "AttributeError: module 'json' has no attribute 'NoSuchName'"),
    ],
)
def test_a_broken_plugin_says_why(registered: list[EntryPoint], value: str, reason: str) -> None:
    registered.append(point(value))
    with pytest.raises(PluginError) as caught:
        plugins.load("environments", "toy")
    message = str(caught.value)
    assert message.startswith(f"environment 'toy' ({value}, from ") and reason in message
    assert isinstance(caught.value.__cause__, Exception)


def test_an_unknown_name_lists_the_known_ones(registered: list[EntryPoint]) -> None:
    with pytest.raises(PluginError, match="unknown environment 'sokobn'; registered: none"):
        plugins.load("environments", "sokobn")
    plugins.registered.cache_clear()
    registered += [point("json:loads", "sokoban"), point("json:loads", "svg")]
    with pytest.raises(PluginError, match="registered: sokoban, svg"):
        plugins.load("environments", "sokobn")
