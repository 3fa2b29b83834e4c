"""Plugins are found by name, and a broken one says whose it is and why."""

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
from pivot import plugins
from pivot.environments.base import PivotEnv
from pivot.errors import PluginError


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """A list of entry points that stand in for the installed ones."""
    points: list[EntryPoint] = []

    def clear() -> None:
        plugins._entry_points.cache_clear()
        plugins.load.cache_clear()

    monkeypatch.setattr(plugins, "entry_points", lambda group: [point for point in points if point.group == group])
    clear()
    yield points
    clear()


def point(value: str, name: str = "toy") -> EntryPoint:
    return EntryPoint(name=name, value=value, group="pivot.environments")


@pytest.mark.parametrize("name", ["sokoban", "frozenlake"])
def test_the_embedded_environments_are_registered(name: str) -> None:
    assert name in plugins.names("environments")
    env_type = plugins.load("environments", name)
    assert issubclass(env_type, PivotEnv)
    assert env_type.profile.name == name


def test_a_third_party_environment_is_found(registered: list[EntryPoint]) -> None:
    registered += [point("json:loads"), point("json:dumps", "another")]
    assert plugins.names("environments") == ["another", "toy"]
    assert plugins.load("environments", "toy")("[1]") == [1]


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
    assert message.startswith(f"environment 'toy' ({value}, from ")
    assert reason in message
    assert isinstance(caught.value.__cause__, Exception)


def test_a_module_that_raises_while_imported_says_why(
    registered: list[EntryPoint], tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "explosive_plugin.py").write_text("raise RuntimeError('needs a display')\n")
    monkeypatch.syspath_prepend(tmp_path)
    owned = point("explosive_plugin:Env")
    vars(owned)["dist"] = SimpleNamespace(name="explosive-dist")
    registered.append(owned)
    with pytest.raises(PluginError, match=r"from explosive-dist\) failed to import: RuntimeError: needs a display"):
        plugins.load("environments", "toy")


def test_an_unknown_name_lists_the_known_ones(registered: list[EntryPoint]) -> None:
    with pytest.raises(PluginError, match="unknown environment 'sokobn'; registered: none"):
        plugins.load("environments", "sokobn")
    plugins._entry_points.cache_clear()
    registered += [point("json:loads", "sokoban"), point("json:loads", "svg")]
    with pytest.raises(PluginError, match="registered: sokoban, svg"):
        plugins.load("environments", "sokobn")
