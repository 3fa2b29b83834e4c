"""Independent implementation of the puzzles for ``pivot verify``: parsing, rules and forward exploration.

It deliberately shares no code with the fast solvers, whose mistakes it would repeat. All states of a FrozenLake level
and of a small Sokoban level are explored one at a time. Other Sokoban states are numbered densely (rank of the sorted
boxes, then the player) and explored breadth-first with numpy, only as deep as a proof requires: every state of an
episode is within as many moves of its start as the episode has turns, and the proof of a distance stops at that
distance. Only a lost game is searched completely. The search prunes states that cannot lead to success: a box that no
push brings to a target, and states that need more pushes than moves remain.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from math import comb, inf

import numpy as np
from numpy.typing import NDArray

from ..core.errors import CertifyError, LevelError

ORDER = ("up", "down", "left", "right")
NOTHING = "invalid"

MAX_NUMBERS = 1_000_000_000
"""Largest number of distinct states: one byte each, of which only the reached ones take memory."""
FEW_NUMBERS = 2_000
"""Largest number of distinct states of a level that is explored one state at a time, which takes 5 ms at most."""
MAX_STATES = 20_000_000
"""Largest number of states explored in one search, like the solver's."""

Place = tuple[int, int]
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_BACK = [ORDER.index(_OPPOSITE[action]) for action in ORDER]
_NEVER = 1_000_000
"""Number of pushes that stands for "unreachable"."""
_DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Game(ABC):
    """One level: its initial state, its transitions, and the distance of every state from success."""

    start: Hashable

    @abstractmethod
    def after(self, state: Hashable, action: str) -> Hashable:
        """Return the state after one action."""

    @abstractmethod
    def is_solved(self, state: Hashable) -> bool:
        """Return whether the state is a success."""

    def is_over(self, state: Hashable) -> bool:
        """Return whether the state is terminal."""
        return self.is_solved(state)

    @abstractmethod
    def in_time(self, state: Hashable, budget: int) -> bool:
        """Return whether success is possible from a state of an episode within the turns that remain there."""

    @abstractmethod
    def distance(self, state: Hashable, limit: int | None = None) -> float | None:
        """Return the fewest actions to success, None if unreachable, infinity for more than ``limit``.

        Raises:
            CertifyError: the search would exceed its cap of states.
        """


def _all_lengths(game: Game) -> dict[Hashable, int]:
    """Return the fewest actions to success from all reachable states from which success is possible."""
    states, before = [game.start], dict[Hashable, list[Hashable]]({game.start: []})
    for state in states:  # grows
        for following in () if game.is_over(state) else {game.after(state, action) for action in ORDER}:
            if following not in before:
                before[following] = []
                states.append(following)
            before[following].append(state)
    states = [state for state in states if game.is_solved(state)]
    lengths = dict.fromkeys(states, 0)
    for state in states:  # grows
        for earlier in before[state]:
            if earlier not in lengths:
                lengths[earlier] = lengths[state] + 1
                states.append(earlier)
    return lengths


class LakeGame(Game):
    """FrozenLake. A state is (row, column)."""

    def __init__(self, text: str, horizon: int, max_states: int = MAX_STATES) -> None:
        del horizon, max_states  # a map has as many states as cells
        lines = text.split("\n")
        position = lines.pop().split()[1:] if lines[-1].startswith("@") else None
        self.tiles = {(y, x): tile for y, line in enumerate(lines) for x, tile in enumerate(line)}
        starts = [place for place, tile in self.tiles.items() if tile == "S"]
        if len(starts) != 1 or set(self.tiles.values()) - set("SFHG") or len({len(line) for line in lines}) != 1:
            raise LevelError("the map is not a rectangle of S F H G with one S")
        self.start = (int(position[0]), int(position[1])) if position else starts[0]
        if self.start not in self.tiles:
            raise LevelError("the agent starts off the map")
        self.lengths = _all_lengths(self)

    def after(self, state: Hashable, action: str) -> Hashable:
        y, x = state  # pyright: ignore[reportGeneralTypeIssues]
        dy, dx = _DIRECTIONS.get(action, (0, 0))
        return (y + dy, x + dx) if (y + dy, x + dx) in self.tiles else state

    def is_solved(self, state: Hashable) -> bool:
        return self.tiles[state] == "G"  # pyright: ignore[reportArgumentType]

    def is_over(self, state: Hashable) -> bool:
        return self.tiles[state] in "GH"  # pyright: ignore[reportArgumentType]

    def in_time(self, state: Hashable, budget: int) -> bool:
        return self.lengths.get(state, budget + 1) <= budget

    def distance(self, state: Hashable, limit: int | None = None) -> float | None:
        del limit
        return self.lengths.get(state)


class BoxGame(Game):
    """Sokoban. A state is (player, sorted boxes), cells numbered in reading order."""

    def __init__(self, text: str, horizon: int, max_states: int = MAX_STATES) -> None:
        self._max_states = max_states
        symbols = {(y, x): s for y, line in enumerate(text.splitlines()) for x, s in enumerate(line) if s not in "#\r"}
        unknown = set(symbols.values()) - set("@+$*. -_")
        players = [place for place, symbol in symbols.items() if symbol in "@+"]
        if unknown or len(players) != 1:
            raise LevelError(f"the level has {len(players)} players and the unknown symbols {sorted(unknown)}")
        # Relevant cells are connected by floor to the player, a box or a target.
        waiting = [place for place, symbol in symbols.items() if symbol in "@+$*."]
        floor = set(waiting)
        while waiting:
            y, x = waiting.pop()
            for place in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if place in symbols and place not in floor:
                    floor.add(place)
                    waiting.append(place)
        cells = sorted(floor)
        number = {place: cell for cell, place in enumerate(cells)}
        self.size = len(cells)
        self.near = {
            action: [number.get((y + dy, x + dx), -1) for y, x in cells] for action, (dy, dx) in _DIRECTIONS.items()
        }
        self.targets = frozenset(number[place] for place in cells if symbols[place] in ".*+")
        boxes = tuple(number[place] for place in cells if symbols[place] in "$*")
        if not 0 < len(boxes) <= len(self.targets):
            raise LevelError(f"the level has {len(boxes)} boxes and {len(self.targets)} targets")
        self.start = (number[players[0]], boxes)
        wall = self.size
        self._numbers = comb(wall, len(boxes)) * wall
        self._lengths = _all_lengths(self) if self._numbers <= min(FEW_NUMBERS, max_states) else None
        if self._lengths is not None:
            return
        # One additional cell represents all walls; it is its own neighbour.
        self._wall_near = np.full((4, wall + 1), wall, np.int16)
        for row, action in zip(self._wall_near, ORDER, strict=True):
            row[:wall] = [wall if cell < 0 else cell for cell in self.near[action]]
        self._choose = np.array([[comb(cell, i + 1) for cell in range(wall + 1)] for i in range(len(boxes))], np.int64)
        self._goal = np.zeros(wall + 1, np.bool_)
        self._goal[list(self.targets)] = True
        self._pushes = self._fewest_pushes()
        if self._numbers > MAX_NUMBERS:
            raise CertifyError(f"{len(boxes)} boxes on {wall} cells make more than {MAX_NUMBERS} states")
        self._moves_to_go = self._within(horizon)
        self._distances: dict[tuple[Hashable, int | None], float | None] = {}

    def after(self, state: Hashable, action: str) -> Hashable:
        player, boxes = state  # pyright: ignore[reportGeneralTypeIssues]
        if action == NOTHING:
            return state
        ahead = self.near[action][player]
        if ahead in boxes:
            behind = self.near[action][ahead]
            if behind < 0 or behind in boxes:
                return state
            boxes = tuple(sorted(behind if box == ahead else box for box in boxes))
        return state if ahead < 0 else (ahead, boxes)

    def is_solved(self, state: Hashable) -> bool:
        return self.targets.issuperset(state[1])  # pyright: ignore[reportIndexIssue]

    def in_time(self, state: Hashable, budget: int) -> bool:
        """Return whether success is possible in time; all states of an episode were explored. See the base class."""
        if self._lengths is not None:
            return self._lengths.get(state, budget + 1) <= budget
        distance = int(self._moves_to_go[int(self._number(np.array([_flat(state)], np.int16))[0])])
        return 0 < distance <= budget + 1

    def distance(self, state: Hashable, limit: int | None = None) -> float | None:
        if self._lengths is not None:
            length = self._lengths.get(state)
            return length if limit is None or (length is not None and length <= limit) else inf
        if (state, limit) not in self._distances:
            self._distances[state, limit] = self._searched(state, limit)
        return self._distances[state, limit]

    def _searched(self, state: Hashable, limit: int | None) -> float | None:
        seen = np.zeros(self._numbers, np.bool_)
        for depth, level in enumerate(self._levels(state, limit, seen)):
            if self._goal[level[:, 1:]].all(axis=1).any():
                return depth
        return None if limit is None else inf

    def _fewest_pushes(self) -> NDArray[np.int32]:
        """Return the fewest pushes of a single box from every cell to a target; ``_NEVER`` if there are none."""
        pushes = np.full(self.size + 1, _NEVER, np.int32)
        waiting = list(self.targets)
        pushes[waiting] = 0
        for cell in waiting:  # grows while boxes are pulled back from the targets
            for action in ORDER:
                away = self.near[_OPPOSITE[action]]
                before = away[cell]
                if before >= 0 and away[before] >= 0 and pushes[before] == _NEVER:
                    pushes[before] = pushes[cell] + 1
                    waiting.append(before)
        return pushes

    def _number(self, states: NDArray[np.int16]) -> NDArray[np.int64]:
        rank = np.zeros(len(states), np.int64)
        for i, choose in enumerate(self._choose):
            rank += choose[states[:, i + 1]]
        return rank * self.size + states[:, 0]

    def _levels(self, state: Hashable, limit: int | None, seen: NDArray[np.bool_]) -> Iterator[NDArray[np.int16]]:
        """Yield the new states after 0, 1, ... moves, up to ``limit``, and mark their numbers in ``seen``."""
        level = np.array([_flat(state)], np.int16)
        seen[self._number(level)] = True
        total, depth = 1, 0
        while len(level):
            yield level
            depth += 1
            if limit is not None and depth > limit:
                return
            level = self._new(self._after_all(level), seen, _NEVER - 1 if limit is None else limit - depth)
            total += len(level)
            if total > self._max_states:
                raise CertifyError(f"the search met more than {self._max_states} states")

    def _new(self, states: NDArray[np.int16], seen: NDArray[np.bool_], left: int) -> NDArray[np.int16]:
        """Return the new states, without duplicates, that may be solved with ``left`` pushes; mark them."""
        states = states[self._pushes[states[:, 1:]].sum(axis=1) <= left]
        numbers = self._number(states)
        new = ~seen[numbers]
        numbers, first = np.unique(numbers[new], return_index=True)
        seen[numbers] = True
        return states[new][first]

    def _after_all(self, level: NDArray[np.int16]) -> NDArray[np.int16]:
        """Return the successors of states by moves that have an effect."""
        ahead = self._wall_near[:, level[:, 0]]  # shape (directions, states), as all that follow
        behind = np.take_along_axis(self._wall_near, ahead, 1)
        hit = level[:, 1:] == ahead[..., None]
        blocked = hit.any(axis=2) & ((behind == self.size) | (level[:, 1:] == behind[..., None]).any(axis=2))
        return _moved(level, (ahead != self.size) & ~blocked, ahead, hit, behind)

    def _before_all(self, level: NDArray[np.int16]) -> NDArray[np.int16]:
        """Return the predecessors of states, by moves with and without a push."""
        player = level[:, 0]
        came = self._wall_near[_BACK][:, player]
        free = (came != self.size) & ~(level[:, 1:] == came[..., None]).any(axis=2)
        hit = level[:, 1:] == self._wall_near[:, player][..., None]
        box = np.broadcast_to(player, came.shape)
        walked = _moved(level, free, came, np.zeros_like(hit), box)
        return np.concatenate([walked, _moved(level, free & hit.any(axis=2), came, hit, box)])

    def _within(self, horizon: int) -> NDArray[np.int16]:
        """Return, by state number, the distance plus one of every state from which success is possible in time, else 0.

        Success in time is possible from a state that is reached after n moves if its distance is at most
        ``horizon`` - n; all states on its path are then reached, too.
        """
        seen = np.zeros(self._numbers, np.bool_)
        solved = [level[self._goal[level[:, 1:]].all(axis=1)] for level in self._levels(self.start, horizon, seen)]
        moves = np.zeros(self._numbers, np.int16)
        level, depth = np.concatenate(solved), 1
        while len(level):
            moves[self._number(level)] = depth
            states = self._before_all(level)
            numbers = self._number(states)
            numbers, first = np.unique(numbers, return_index=True)
            new = seen[numbers] & (moves[numbers] == 0)
            level, depth = states[first[new]], depth + 1
        return moves


def _flat(state: Hashable) -> list[int]:
    player, boxes = state  # pyright: ignore[reportGeneralTypeIssues]
    return [player, *boxes]


def _moved(
    level: NDArray[np.int16],
    chosen: NDArray[np.bool_],
    player: NDArray[np.int16],
    hit: NDArray[np.bool_],
    box: NDArray[np.int16],
) -> NDArray[np.int16]:
    """Return the ``chosen`` states with a new position of the player and of the box ``hit``; boxes stay sorted.

    Arrays have shape (directions, states), and ``hit`` has one more axis of boxes.
    """
    then = level[np.nonzero(chosen)[1]]
    then[:, 0] = player[chosen]
    hit = hit[chosen]
    then[:, 1:] = np.where(hit, box[chosen][:, None], then[:, 1:])
    pushed = hit.any(axis=1)
    then[pushed, 1:] = np.sort(then[pushed, 1:], axis=1)
    return then
