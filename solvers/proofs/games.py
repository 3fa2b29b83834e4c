"""The games once more, for ``verify`` only: own reading of the texts, own rules, forward exploration of all states.

Nothing of the fast solvers is used here, on purpose: a proof by the same code would repeat its mistakes. Sokoban states
are numbered densely (rank of the sorted boxes, then the player) and explored a level at a time with numpy. Distances
come from networkx up to 20,000 states; above that, where a graph object would take a kilobyte a state, from one sweep
over the sorted edges.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from math import comb

import networkx
import numpy as np
from numpy.typing import NDArray

from ...errors import CertifyError, LevelError

ORDER = ("up", "down", "left", "right")
NOTHING = "invalid"

MAX_GRAPH = 20_000
"""Largest number of states handed to networkx."""
MAX_NUMBERS = 60_000_000
MAX_STATES = 6_000_000
"""Largest number of states explored: about 1 GB of edges."""

Place = tuple[int, int]
_DIRECTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_GOAL = "goal"


class Game(ABC):
    """One level: where it starts, what actions do, and how far every state is from success."""

    start: Hashable

    @abstractmethod
    def after(self, state: Hashable, action: str) -> Hashable:
        """Return the state after one action."""

    @abstractmethod
    def is_solved(self, state: Hashable) -> bool:
        """Tell whether the state is a success."""

    def is_over(self, state: Hashable) -> bool:
        """Tell whether nothing can follow the state."""
        return self.is_solved(state)

    @abstractmethod
    def distance(self, state: Hashable) -> int | None:
        """Return the fewest actions to success; None when it is out of reach."""


class LakeGame(Game):
    """FrozenLake. A state is (row, column)."""

    def __init__(self, text: str, max_states: int = MAX_STATES) -> None:
        del max_states  # a map has as many states as cells
        lines = text.split("\n")
        position = lines.pop().split()[1:] if lines[-1].startswith("@") else None
        self.tiles = {(y, x): tile for y, line in enumerate(lines) for x, tile in enumerate(line)}
        starts = [place for place, tile in self.tiles.items() if tile == "S"]
        if len(starts) != 1 or set(self.tiles.values()) - set("SFHG") or len({len(line) for line in lines}) != 1:
            raise LevelError("the map is not a rectangle of S F H G with one S")
        self.start = (int(position[0]), int(position[1])) if position else starts[0]
        if self.start not in self.tiles:
            raise LevelError("the agent starts off the map")
        graph = networkx.DiGraph()
        graph.add_node(_GOAL)
        for place, tile in self.tiles.items():
            if tile == "G":
                graph.add_edge(_GOAL, place)
            elif tile != "H":
                graph.add_edges_from((self.after(place, action), place) for action in ORDER)
        lengths = networkx.single_source_shortest_path_length(graph, _GOAL)
        self.lengths = {place: length - 1 for place, length in lengths.items()}

    def after(self, state: Hashable, action: str) -> Hashable:
        y, x = state  # pyright: ignore[reportGeneralTypeIssues]
        dy, dx = _DIRECTIONS.get(action, (0, 0))
        return (y + dy, x + dx) if (y + dy, x + dx) in self.tiles else state

    def is_solved(self, state: Hashable) -> bool:
        return self.tiles[state] == "G"  # pyright: ignore[reportArgumentType]

    def is_over(self, state: Hashable) -> bool:
        return self.tiles[state] in "GH"  # pyright: ignore[reportArgumentType]

    def distance(self, state: Hashable) -> int | None:
        return self.lengths.get(state)


class BoxGame(Game):
    """Sokoban. A state is (player, sorted boxes), cells numbered in reading order."""

    def __init__(self, text: str, max_states: int = MAX_STATES) -> None:
        self._max_states = max_states
        symbols = {(y, x): s for y, line in enumerate(text.splitlines()) for x, s in enumerate(line) if s not in "#\r"}
        unknown = set(symbols.values()) - set("@+$*. -_")
        players = [place for place, symbol in symbols.items() if symbol in "@+"]
        if unknown or len(players) != 1:
            raise LevelError(f"the level has {len(players)} players and the unknown symbols {sorted(unknown)}")
        # The cells that matter are joined by floor to the player, a box or a target.
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
        self.choose = [[comb(cell, i + 1) for cell in range(self.size + 1)] for i in range(len(boxes))]
        if comb(self.size, len(boxes)) * self.size > MAX_NUMBERS:
            raise CertifyError(f"{len(boxes)} boxes on {self.size} cells make more than {MAX_NUMBERS} states")
        self.distances = self._all_distances(*self._explore())

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

    def distance(self, state: Hashable) -> int | None:
        player, boxes = state  # pyright: ignore[reportGeneralTypeIssues]
        rank = sum(self.choose[i][box] for i, box in enumerate(boxes))
        length = int(self.distances[rank * self.size + player])
        return None if length < 0 else length

    def _explore(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
        """Return the tails and heads of all moves that change a reachable state, and the solved states, as numbers."""
        boxes_count = len(self.start[1])  # pyright: ignore[reportIndexIssue]
        # One cell more stands for every wall; it is its own neighbour.
        wall = self.size
        near = np.full((4, wall + 1), wall, np.int16)
        for row, action in zip(near, ORDER, strict=True):
            row[:wall] = [wall if cell < 0 else cell for cell in self.near[action]]
        choose = np.array(self.choose, np.int64)
        goal = np.zeros(wall + 1, np.bool_)
        goal[list(self.targets)] = True
        seen = np.zeros(comb(wall, boxes_count) * wall, np.bool_)

        def numbers(states: NDArray[np.int16]) -> NDArray[np.int32]:
            rank = sum(choose[i][states[:, i + 1]] for i in range(boxes_count))
            return (rank * wall + states[:, 0]).astype(np.int32)

        level = np.array([[self.start[0], *self.start[1]]], np.int16)  # pyright: ignore[reportIndexIssue]
        named = numbers(level)
        seen[named] = True
        tails, heads, solved = [], [], [named[goal[level[:, 1:]].all(axis=1)]]
        total = 1
        while len(level):
            found, found_named = [], []
            for steps in near:
                ahead = steps[level[:, 0]]
                behind = steps[ahead]
                hit = level[:, 1:] == ahead[:, None]
                pushes = hit.any(axis=1)
                free = (ahead != wall) & ~(pushes & ((behind == wall) | (level[:, 1:] == behind[:, None]).any(axis=1)))
                then = level[free]
                then[:, 0] = ahead[free]
                then[:, 1:] = np.where(hit[free], behind[free][:, None], then[:, 1:])
                moved = pushes[free]
                if boxes_count > 1:
                    then[moved, 1:] = np.sort(then[moved, 1:], axis=1)
                then_named = numbers(then)
                tails.append(named[free])
                heads.append(then_named)
                new = ~seen[then_named]
                found.append(then[new])
                found_named.append(then_named[new])
            named, first = np.unique(np.concatenate(found_named), return_index=True)
            level = np.concatenate(found)[first]
            seen[named] = True
            solved.append(named[goal[level[:, 1:]].all(axis=1)])
            total += len(level)
            if total > self._max_states:
                raise CertifyError(f"the level has more than {self._max_states} reachable states")
        return np.concatenate(tails), np.concatenate(heads), np.concatenate(solved)

    def _all_distances(
        self, tails: NDArray[np.int32], heads: NDArray[np.int32], solved: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Return the distance of every state number, -1 where there is none or it was not explored."""
        distances = np.full(comb(self.size, len(self.choose)) * self.size, -1, np.int32)
        if len(tails) <= 4 * MAX_GRAPH:
            graph = networkx.DiGraph(zip(heads.tolist(), tails.tolist(), strict=True))
            graph.add_edges_from((_GOAL, state) for state in solved.tolist())
            if _GOAL in graph:
                lengths = networkx.single_source_shortest_path_length(graph, _GOAL)
                del lengths[_GOAL]
                distances[list(lengths)] = np.fromiter(lengths.values(), np.int32) - 1
            return distances
        order = np.argsort(heads, kind="stable")
        heads, tails = heads[order], tails[order]
        level, depth = solved, 0
        while len(level):
            distances[level] = depth
            depth += 1
            first = np.searchsorted(heads, level, "left")
            sizes = np.searchsorted(heads, level, "right") - first
            offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            before = tails[np.repeat(first, sizes) + offsets]
            level = np.unique(before[distances[before] < 0])
        return distances
