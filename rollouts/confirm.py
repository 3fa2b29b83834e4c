"""Confirmation of a replay: the turns for which a recording excludes all other actions.

The search carries every state that some actions reach in agreement with the recorded values, the replayed one among
them. A turn is *confirmed* if all these histories are in the replay's state after it: replaying it as an unusable
reply, or as another action, would then contradict a recorded value of this turn or of a later one. A reward that an
unusable turn earns, too, a picture that no action would have changed, or the length of the log confirm nothing.

Recorded values that differ from the replay are found before (:mod:`pivot.interop.replay`), so that here every recorded
value is that of the replay itself, and a recording is described by the kinds of its values alone.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.images import Frame
from ..environments.base import PivotEnv, actions_per_turn
from ..environments.grid import GridEnv
from ..solvers.base import TURN_SEPARATOR

PICTURE, BOARD, STATE, REWARD, END, INFO = "picture", "board", "state", "reward", "end", "info"
"""Kinds of recorded values; a measurement is ``info`` and its key, such as ``info:moved``."""
_MOST_STATES = 48
"""Maximum number of possible states at one moment; a recording that allows more confirms none."""
_MOST_TURNS = 400
"""Most different turns of several actions that are tried from a state."""

Move = tuple[str, str | None]
"""Name and payload of an action."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Turns of a replay that a recording confirms."""

    turns: int = 0
    """Number of confirmed turns; a last turn that cannot change the label counts as confirmed."""
    whole: bool = False
    """Whether every turn is confirmed."""
    open_end: bool = False
    """Whether all turns but the last are confirmed, as with pictures recorded only before each turn."""
    kinds: tuple[str, ...] = ()
    """Kinds of values that excluded another action at some turn."""


@dataclass(slots=True)
class _Sight:
    """Values of one moment."""

    env: PivotEnv
    reward: float
    ended: tuple[bool, bool]
    """Whether the episode was terminated, and succeeded."""
    info: Mapping[str, Any]
    state: str
    whole_state: Hashable
    """Key of the state, by which histories are compared; a simulator's snapshot also contains the past actions."""
    snapshot: bytes
    over: bool
    key: Any
    frame: Frame | None = None

    def picture(self) -> Frame:
        """Return the picture of the moment."""
        if self.frame is None:
            self.env.restore(self.snapshot)
            self.frame = self.env.render()  # pyright: ignore[reportAttributeAccessIssue]
        return self.frame  # pyright: ignore[reportReturnType]

    def differs(self, other: "_Sight", kind: str) -> bool:
        """Return whether another moment has a different value of a kind."""
        if kind in (STATE, BOARD):
            return self.state != other.state
        if kind == REWARD:
            return not math.isclose(self.reward, other.reward, rel_tol=0, abs_tol=1e-6)
        if kind.startswith(END):
            which = kind.endswith(":success")
            return self.ended[which] != other.ended[which]
        if kind == PICTURE:
            if self.state == other.state or (self.key is not None and self.key == other.key):
                return False
            return not np.array_equal(self.picture(), other.picture())
        key = kind.partition(":")[2]
        return self.info.get(key) != other.info.get(key)


@dataclass(slots=True)
class _Layer:
    """All possible states at one moment, each with a snapshot and its predecessors."""

    replayed: Hashable
    snapshots: dict[Hashable, bytes]
    before: dict[Hashable, set[Hashable]] = field(default_factory=dict[Hashable, set[Hashable]])


class _Search:
    def __init__(self, env: PivotEnv) -> None:
        self._env = env
        self._success = env.profile.has_success_bit
        self.has_all = bool(env.actions) and env.config.most_instances is None
        """Whether all other actions can be tried; where they cannot, only values that show the state confirm a turn."""

    def confirming(self, recorded: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Return the recorded kinds that may confirm a turn."""
        if self.has_all:
            return recorded
        return [[kind for kind in kinds if kind in (PICTURE, BOARD, STATE)] for kinds in recorded]

    def step(self, snapshot: bytes, moves: Sequence[Move]) -> _Sight:
        """Play one turn from a snapshot."""
        env, reward = self._env, 0.0
        env.restore(snapshot)
        terminated = truncated = False
        info: Mapping[str, Any] = {}
        for name, payload in moves:
            if terminated or truncated:
                break
            _, gain, terminated, truncated, info = env.step(env.encode_action(name, payload))
            reward += float(gain)
        ended = (bool(terminated), bool(info.get("success")) if self._success else False)
        over = bool(terminated or truncated)
        return _Sight(
            env, reward, ended, dict(info), env.changing_state(), env.state_key(), env.snapshot(), over, env.frame_key()
        )

    def others(self, snapshot: bytes, played: Sequence[Move]) -> Iterator[_Sight]:
        """Play the turns that could have been played in place of ``played``, and yield what each shows."""
        env = self._env
        unusable: Move = (env.profile.unusable_action, None)
        yield from self._allowed(snapshot, [unusable] * len(played))
        if not self.has_all:
            return
        most = actions_per_turn(env.config)
        if most == 1 and len(played) == 1:
            for name in env.actions:
                yield from self._allowed(snapshot, [(name, None)])
            return
        # Turns of several actions: prefixes with the same state and reward are continued once.
        count = most if most > 1 else len(played)
        results = set[tuple[Hashable, float, bool]]()
        prefixes: list[tuple[str, ...]] = [()]
        for _ in range(count):
            longer = [(*prefix, name) for prefix in prefixes for name in env.actions]
            prefixes = []
            for names in longer:
                for sight in self._allowed(snapshot, _turn(names, count, unusable, joined=most > 1)):
                    result = (sight.whole_state, round(sight.reward, 6), sight.over)
                    if result not in results and len(results) < _MOST_TURNS:
                        results.add(result)
                        prefixes.append(names)
                        yield sight

    def _allowed(self, snapshot: bytes, moves: Sequence[Move]) -> Iterator[_Sight]:
        try:
            yield self.step(snapshot, moves)
        except Exception:  # noqa: BLE001 - foreign code; the environment refuses this action here, so it was not played
            return


def _turn(names: Sequence[str], count: int, unusable: Move, *, joined: bool) -> list[Move]:
    if joined:
        return [(TURN_SEPARATOR.join(names), None)]
    return [*((name, None) for name in names), *[unusable] * (count - len(names))]


def confirm(
    env: PivotEnv, start: Mapping[str, Any], turns: Sequence[Sequence[Move]], recorded: Sequence[Sequence[str]]
) -> Confirmation:
    """Return what a recording confirms of a replay.

    Args:
        env: the environment; it is left in any state.
        start: options of its ``reset``.
        turns: moves of each turn of the replay, up to the end of the episode.
        recorded: kinds of values that agree with the replay, before the first turn and after each.
    """
    search = _Search(env)
    recorded = search.confirming(recorded)
    if not any(recorded[1:]):
        return Confirmation()
    env.draw_frames = False
    env.reset(options=dict(start))
    first = env.state_key()
    layers = [_Layer(first, {first: env.snapshot()})]
    kinds: dict[str, None] = {}
    harmless, lost = False, False
    for number, (played, seen) in enumerate(zip(turns, recorded[1:], strict=True), 1):
        last = layers[-1]
        right = search.step(last.snapshots[last.replayed], played)
        layer = _Layer(right.whole_state, {right.whole_state: right.snapshot}, {right.whole_state: {last.replayed}})
        endings: list[_Sight] = []
        for text, snapshot in last.snapshots.items():  # the replayed state first
            if len(layer.snapshots) > _MOST_STATES:
                break
            for sight in search.others(snapshot, played):
                endings.append(sight)
                differing = [kind for kind in seen if kind != PICTURE and sight.differs(right, kind)]
                if PICTURE in seen and not (differing and PICTURE in kinds) and sight.differs(right, PICTURE):
                    differing.append(PICTURE)
                if text == last.replayed and sight.whole_state != right.whole_state:
                    kinds |= dict.fromkeys(differing)
                if not differing and (number == len(turns) or not sight.over):  # no turn follows an end
                    layer.snapshots.setdefault(sight.whole_state, sight.snapshot)
                    layer.before.setdefault(sight.whole_state, set()).add(text)
        lost = lost or len(layer.snapshots) > _MOST_STATES
        if lost:
            layer = _Layer(right.whole_state, {right.whole_state: right.snapshot}, {right.whole_state: {last.replayed}})
        # If the last turn could not succeed, the goal was lost before it: the label depends on the earlier turns only.
        harmless = isinstance(env, GridEnv) and all(each.over and not each.ended[1] for each in (*endings, right))
        layers.append(layer)
    confirmed = _confirmed(layers, [search.has_all or bool(seen) for seen in recorded[1:]])
    if harmless and len(confirmed) > 1:
        confirmed[-1] = True
    if lost:
        confirmed = [False] * len(confirmed)
    open_end = len(confirmed) > 1 and all(confirmed[:-1]) and not confirmed[-1]
    return Confirmation(sum(confirmed), all(confirmed), open_end, tuple(kinds))


def _confirmed(layers: Sequence[_Layer], complete: Sequence[bool]) -> list[bool]:
    """Return, per turn, whether the histories are ``complete`` and all that reach the last moment have its state."""
    alive = set(layers[-1].snapshots)
    result: list[bool] = []
    for layer, is_complete in zip(layers[:0:-1], complete[::-1], strict=True):
        result.append(is_complete and alive == {layer.replayed})
        alive = set().union(*(layer.before[each] for each in alive))
    return result[::-1]
