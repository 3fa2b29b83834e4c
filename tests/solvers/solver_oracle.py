"""A third, deliberately plain solver for the tests: closures of whole levels in dictionaries, verdicts by definition.

It shares nothing with ``pivot.solvers``: own reading of the texts, own rules of the games, forward exploration of every
reachable state, and one sweep back from the solved ones. The verdict follows the definitions of
docs/reference/concepts.md word by word.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ORDER = ("up", "down", "left", "right")
INFINITE = 10**9

State = int
Step = Callable[[State, str], State]


@dataclass(frozen=True)
class Game:
    """The part of a game that can be reached from ``start``: distances by state."""

    start: State
    step: Step
    distance: dict[State, int]

    def d(self, state: State) -> int:
        """Return the fewest actions to success, or INFINITE."""
        return self.distance.get(state, INFINITE)


def explore(start: State, step: Step, solved: Callable[[State], bool], final: Callable[[State], bool]) -> Game:
    """Visit all states reachable from ``start``, then count back from the solved states."""
    parents: dict[State, list[State]] = {start: []}
    queue = [start]
    for state in queue:
        if final(state):
            continue
        for action in ORDER:
            following = step(state, action)
            if following == state:
                continue
            if following not in parents:
                parents[following] = []
                queue.append(following)
            parents[following].append(state)
    level = [state for state in queue if solved(state)]
    distance = dict.fromkeys(level, 0)
    depth = 0
    while level:
        depth += 1
        before = []
        for state in level:
            for parent in parents[state]:
                if parent not in distance:
                    distance[parent] = depth
                    before.append(parent)
        level = before
    return Game(start, step, distance)


def sokoban(text: str) -> Game:
    """Read an XSB level. A state is the boxes as a bit set of cells, shifted up by 12, plus the player's cell."""
    lines = text.split("\n")
    width = max(map(len, lines)) + 2
    symbols = " " * width + "".join(" " + line.ljust(width - 1) for line in lines) + " " * width
    wall = [symbol == "#" for symbol in symbols]
    targets = sum(1 << 12 + cell for cell, symbol in enumerate(symbols) if symbol in ".*+")
    boxes = sum(1 << 12 + cell for cell, symbol in enumerate(symbols) if symbol in "$*")
    player = next(cell for cell, symbol in enumerate(symbols) if symbol in "@+")
    deltas = {"up": -width, "down": width, "left": -1, "right": 1}

    def step(state: State, action: str) -> State:
        delta = deltas.get(action, 0)
        here = state & 4095
        near = here + delta
        if wall[near]:
            return state
        box = 1 << 12 + near
        if delta and state & box:
            far = near + delta
            if wall[far] or state >> 12 + far & 1:
                return state
            return (state ^ box ^ 1 << 12 + far) + delta
        return state + delta

    return explore(boxes | player, step, lambda state: not (state >> 12 << 12) & ~targets, lambda state: False)


def frozenlake(text: str) -> Game:
    """Read a map; a state is row * 100 + column."""
    rows = text.split("\n")
    start = next(100 * y + line.index("S") for y, line in enumerate(rows) if "S" in line)

    def step(state: State, action: str) -> State:
        y, x = divmod(state, 100)
        dy, dx = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}.get(action, (0, 0))
        if 0 <= y + dy < len(rows) and 0 <= x + dx < len(rows[0]):
            return 100 * (y + dy) + x + dx
        return state

    def tile(state: State) -> str:
        return rows[state // 100][state % 100]

    return explore(start, step, lambda state: tile(state) == "G", lambda state: tile(state) in "GH")


def replay(game: Game, actions: Sequence[str]) -> list[State]:
    """Return the states s_0..s_T."""
    states = [game.start]
    for action in actions:
        states.append(game.step(states[-1], action))
    return states


def expected(game: Game, actions: Sequence[str], horizon: int) -> dict[str, object]:
    """Return the fields of the verdict that follow from the definitions."""
    states = replay(game, actions)
    fatal = [t for t in range(len(actions)) if game.d(states[t + 1]) > horizon - 1 - t]
    at_start = game.d(states[0]) > horizon
    pivot = 0 if at_start else fatal[0] if fatal else len(actions) - 1
    here, after = states[pivot], states[pivot + 1]
    budget = horizon - 1 - pivot
    return {
        "pivot_step": pivot,
        "failure_mode": "deadlock" if game.d(after) == INFINITE else "timeout",
        "fallback": not fatal and not at_start,
        "infeasible_at_start": at_start,
        "before": None if game.d(here) == INFINITE else game.d(here),
        "after": None if game.d(after) == INFINITE else game.d(after),
        "budget_before": budget + 1,
        "budget_after": budget,
        "witness": None if at_start else best_plan(game, here),
        "feasible_actions": ()
        if at_start
        else tuple(action for action in ORDER if game.d(game.step(here, action)) <= budget),
    }


def best_plan(game: Game, state: State) -> tuple[str, ...]:
    """Return the first of the shortest plans."""
    plan: list[str] = []
    while game.d(state) > 0:
        action = next(action for action in ORDER if game.d(game.step(state, action)) < game.d(state))
        plan.append(action)
        state = game.step(state, action)
    return tuple(plan)


def play(game: Game, length: int, skill: float, rng: random.Random) -> list[str] | None:
    """Return a failed episode of at most ``length`` actions: the best action with chance ``skill``, else any word.

    It ends early in a lost state that nothing leaves (a hole); None when the level is solved from the start.
    """
    state, actions = game.start, []
    while len(actions) < length:
        action = rng.choice((*ORDER, "invalid"))
        if 0 < game.d(state) < INFINITE and rng.random() < skill:
            action = best_plan(game, state)[0]
        following = game.step(state, action)
        if game.d(following) == 0:
            action, following = "invalid", state
        actions.append(action)
        state = following
    return actions if game.d(game.start) > 0 else None


# Random levels, solvable or not


def room(height: int, width: int, walls: float, rng: random.Random) -> list[list[str]]:
    """Return a closed room in which about the share ``walls`` of the inner cells is wall and the floor is connected."""
    while True:
        grid = [["#"] * width for _ in range(height)]
        inner = [(y, x) for y in range(1, height - 1) for x in range(1, width - 1)]
        for y, x in inner:
            if rng.random() >= walls:
                grid[y][x] = " "
        floor = {(y, x) for y, x in inner if grid[y][x] == " "}
        if not floor:
            continue
        stack = [rng.choice(sorted(floor))]
        area = set(stack)
        while stack:
            y, x = stack.pop()
            for cell in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if cell in floor - area:
                    area.add(cell)
                    stack.append(cell)
        for y, x in floor - area:
            grid[y][x] = "#"
        if len(area) >= 0.6 * (1 - walls) * len(inner):
            return grid


def sokoban_level(grid: list[list[str]], boxes: int, pulls: int | None, rng: random.Random) -> str:
    """Fill a room: at random without ``pulls``, else by this number of random backward moves from a solved state."""
    floor = [(y, x) for y, line in enumerate(grid) for x, symbol in enumerate(line) if symbol == " "]
    spots = rng.sample(floor, 2 * boxes + 1)
    targets, placed, player = set(spots[:boxes]), set(spots[boxes : 2 * boxes]), spots[-1]
    if pulls is not None:
        placed = set(targets)
        free = set(floor)
        for _ in range(pulls):
            (y, x), (dy, dx) = player, rng.choice(((-1, 0), (1, 0), (0, -1), (0, 1)))
            back, front = (y - dy, x - dx), (y + dy, x + dx)
            if back not in free or back in placed:
                continue
            if front in placed and rng.random() < 0.7:
                placed = placed - {front} | {player}
            player = back
    rows = [line.copy() for line in grid]
    for y, x in targets:
        rows[y][x] = "."
    for y, x in placed:
        rows[y][x] = "*" if (y, x) in targets else "$"
    rows[player[0]][player[1]] = "+" if player in targets else "@"
    return "\n".join("".join(line) for line in rows)


def frozenlake_map(height: int, width: int, holes: float, rng: random.Random) -> str:
    """Return a map with one start and one or two goals; the goal may be cut off."""
    cells = ["H" if rng.random() < holes else "F" for _ in range(height * width)]
    goals = 2 if height * width > 4 and rng.random() < 0.2 else 1
    start, *ends = rng.sample(range(height * width), 1 + goals)
    cells[start] = "S"
    for end in ends:
        cells[end] = "G"
    return "\n".join("".join(cells[y * width : (y + 1) * width]) for y in range(height))
