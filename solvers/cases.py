"""Arguments of ``pivot.certify``, ``pivot.certify_batch`` and ``pivot.credit``: read, checked and converted."""

import json
import operator
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..core import plugins
from ..core.errors import CertifyError, ConfigError
from .base import TURN_SEPARATOR, Case, Solver

_SEPARATORS = re.compile(r"[|,;\s]+")
FARTHEST = 1e9
"""Largest valid distance, metres."""


def solver_of(env: str, settings: Mapping[str, Any]) -> tuple[type[Solver], plugins.Settings]:
    """Return the solver of an environment and its checked settings.

    Raises:
        CertifyError: the name or a setting cannot be used.
        PluginError: the solver does not exist.
    """
    if not isinstance(env, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CertifyError(f"env: found {shown(env)}, expected the name of an environment")
    kind: type[Solver] = plugins.load("solvers", env)
    try:
        return kind, plugins.read_settings(kind.config_type, settings, f"setting of solver {env}: ")
    except ConfigError as error:
        raise CertifyError(str(error)) from error


def read_episodes(kind: type[Solver], episodes: Iterable[Mapping[str, Any]]) -> list[Case]:
    """Return the cases of mappings with the arguments of ``pivot.certify``, or of rows of the table ``episodes``.

    Raises:
        CertifyError: an argument or a field of an episode is missing or of the wrong type.
    """
    cases: list[Case] = []
    for number, episode in enumerate(episodes):
        if not isinstance(episode, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CertifyError(f"episodes[{number}]: found {shown(episode)}, expected a mapping")
        try:
            fields = {name: episode[name] for name in ("actions", "horizon")}
            fields |= {name: episode.get(name, ()) for name in ("steps", "observations", "distances", "states")}
            most = episode["actions_per_turn"] if "actions_per_turn" in episode else _most_of(episode.get("env_config"))
            cases.append(read_case(kind, episode.get("initial_state", ""), **fields, most=most))
        except KeyError as error:
            raise CertifyError(f"episodes[{number}]: found no {error.args[0]!r}, expected one") from error
        except CertifyError as error:
            raise CertifyError(f"episodes[{number}]: {error}") from error
    return cases


def read_trajectories(episodes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return episodes of an environment of one's own, checked and without the fields that are None.

    Raises:
        CertifyError: an episode is not a mapping, or lacks actions or horizon.
    """
    checked: list[Mapping[str, Any]] = []
    for number, episode in enumerate(episodes):
        if not isinstance(episode, Mapping) or not {"actions", "horizon"} <= episode.keys():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise CertifyError(
                f"episodes[{number}]: found {shown(episode)}, expected a mapping with actions and horizon"
            )
        whole(f"episodes[{number}]: horizon", episode["horizon"])
        actions = _listed(f"episodes[{number}]: actions", episode["actions"], "actions")
        checked.append({name: each for name, each in episode.items() if each is not None} | {"actions": actions})
    return checked


def read_case(
    kind: type[Solver],
    initial_state: Any,
    actions: Any,
    horizon: Any,
    steps: Any,
    observations: Any,
    distances: Any,
    most: Any,
    states: Any = (),
) -> Case:
    """Return the case of an episode: its types are checked, and other notations converted.

    Raises:
        CertifyError: an argument is of the wrong type.
    """
    most = whole("actions_per_turn", most, "actions")
    if most > 1 and not kind.labels_long_turns:
        raise CertifyError(f"actions_per_turn: found {most}, expected 1; a turn of {kind.name} has no further actions")
    turns = _texts("actions", actions, "action names, such as ['up', 'left']")
    if not set(kind.actions).issuperset(turns):
        parts = [[part for part in _SEPARATORS.split(turn) if part] if most > 1 else [turn] for turn in turns]
        turns = [TURN_SEPARATOR.join(map(kind.read_action, each)) for each in parts]
    infos = _listed("steps", steps, "mappings, one a step")
    for number, info in enumerate(infos):
        if not isinstance(info, Mapping):
            raise CertifyError(f"steps[{number}]: found {shown(info)}, expected a mapping, the info of a step")
    if not isinstance(initial_state, str):
        raise CertifyError(
            f"initial_state: found {shown(initial_state)}, expected a level as text (empty if distances are passed)"
        )
    metres = _metres(distances, len(turns))
    if metres:
        if initial_state or infos:
            raise CertifyError("distances: found together with initial_state or steps, expected only one of them")
        initial_state, infos = kind.read_distance(metres[0]), [{"dist": each} for each in metres[1:]]
    if not initial_state:
        raise CertifyError("initial_state: found an empty text, expected a level (or, for navigation, distances)")
    seen = _texts("observations", observations, "texts, one a step")
    logged = _texts("states", states, "state texts, one before each action")
    return Case(kind.read_level(initial_state), turns, whole("horizon", horizon), infos, seen, most, logged)


def _most_of(env_config: Any) -> Any:
    """Return the actions per turn of a stored episode."""
    try:
        settings: Any = json.loads(env_config) if isinstance(env_config, str) else env_config
    except ValueError:
        settings = None
    return settings.get("actions_per_turn", 1) if isinstance(settings, Mapping) else 1  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _metres(distances: Any, turns: int) -> list[float]:
    metres = _listed("distances", distances, "metres")
    for number, each in enumerate(metres):
        if isinstance(each, bool) or not isinstance(each, int | float) or not 0 <= each <= FARTHEST:
            raise CertifyError(f"distances[{number}]: found {shown(each)}, expected metres, 0 or more")
    if metres and len(metres) != turns + 1:
        raise CertifyError(
            f"distances: found {len(metres)} for {turns} actions, expected {turns + 1}: before the first and after each"
        )
    return metres


def _listed(name: str, values: Any, what: str) -> list[Any]:
    if type(values) in (list, tuple):
        return list(values)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise CertifyError(f"{name}: found {shown(values)}, expected a list of {what}")
    return list(cast(Iterable[Any], values))


def _texts(name: str, values: Any, what: str) -> list[str]:
    listed = _listed(name, values, what)
    for number, each in enumerate(listed) if set(map(type, listed)) - {str} else ():
        if not isinstance(each, str):
            raise CertifyError(f"{name}[{number}]: found {shown(each)}, expected a text")
    return listed


def whole(name: str, value: Any, what: str = "turns") -> int:
    """Return a whole number of at least 1.

    Raises:
        CertifyError: the value is something else.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < 1:
        raise CertifyError(f"{name}: found {shown(value)}, expected a whole number of {what}, 1 or more")
    return number


def shown(value: Any) -> str:
    """Return a value on one line of at most 60 characters, for a message."""
    text = " ".join(repr(value).split())
    return f"{text[:60]}…" if len(text) > 60 else text
