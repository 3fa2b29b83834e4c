"""The chance that a noisy expert's retry lifts a FrozenLake failure: dynamic programming over map, policy and budget.

Written from the rules alone: the map is walked cell by cell, distances are found by a search of its own, and the expert
is taken at its habits' word. A turn costs 0.1, the goal gives 10: a retry is better than a failure that took ``old``
turns if it reaches the goal, or falls into a hole in fewer.
"""

from collections import deque
from functools import cache

MOVES = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}


class Lake:
    """One level and an expert of a fixed score."""

    def __init__(
        self,
        rows: list[str],
        actions: tuple[str, ...],
        *,
        sight: int,
        chance: float,
        blunder: float,
        hesitation: float,
    ) -> None:
        """Take a map of S, F, H, G and the habits of the expert.

        ``chance`` is that of an expert move; what is farther from the goal than ``sight`` is lost for the expert.
        """
        self.sight = sight
        self.rows, self.actions = rows, actions
        self.chance, self.blunder, self.hesitation = chance, blunder, hesitation
        self.distance = self._distances()

    def _distances(self) -> dict[tuple[int, int], int]:
        goal = next((r, c) for r, row in enumerate(self.rows) for c, mark in enumerate(row) if mark == "G")
        distances, queue = {goal: 0}, deque([goal])
        while queue:
            r, c = queue.popleft()
            for dr, dc in MOVES.values():
                cell = (r + dr, c + dc)
                if self.mark(cell) in "SF" and cell not in distances:
                    distances[cell] = distances[r, c] + 1
                    queue.append(cell)
        return {cell: need for cell, need in distances.items() if need <= self.sight}

    def mark(self, cell: tuple[int, int]) -> str:
        """Return the content of a cell; ``#`` outside."""
        r, c = cell
        return self.rows[r][c] if 0 <= r < len(self.rows) and 0 <= c < len(self.rows[0]) else "#"

    def after(self, cell: tuple[int, int], action: str) -> tuple[int, int]:
        """Where a move leads."""
        dr, dc = MOVES[action]
        to = (cell[0] + dr, cell[1] + dc)
        return cell if self.mark(to) == "#" else to

    def odds(self, cell: tuple[int, int]) -> dict[str, float]:
        """The chance of every action in a cell."""
        left = {action: self.distance.get(self.after(cell, action)) for action in self.actions}
        reach = {action: need for action, need in left.items() if need is not None}
        fatal = [action for action, need in left.items() if need is None] if reach else []
        best = [action for action, need in reach.items() if need == min(reach.values())]
        idle = [action for action in reach if action not in best]
        odds = dict.fromkeys(self.actions, 0.0)

        def spread(actions: list[str] | tuple[str, ...], share: float) -> None:
            for action in actions:
                odds[action] += share / len(actions)

        # One number decides blunder and hesitation: a blunder takes its upper end, hesitation its lower one.
        blunder = self.blunder if fatal else 0.0
        spread(fatal, blunder)
        rest = 1 - blunder
        expert = self.chance if best else 0.0
        spread(best, rest * expert)
        hesitant = min(self.hesitation, rest) / rest if idle else 0.0
        spread(idle, rest * (1 - expert) * hesitant)
        spread(self.actions, rest * (1 - expert) * (1 - hesitant))
        return odds

    def lift(self, cell: tuple[int, int], turns: int, old: int) -> float:
        """The chance that a retry of at most ``turns`` turns is better than a failure that took ``old`` from here."""

        @cache
        def chance(cell: tuple[int, int], taken: int) -> float:
            if self.mark(cell) == "G":
                return 1.0
            if self.mark(cell) == "H":
                return float(taken < old)
            if taken == turns:
                return 0.0
            return sum(share * chance(self.after(cell, action), taken + 1) for action, share in self.odds(cell).items())

        return chance(cell, 0)
