"""Random Sokoban levels and FrozenLake maps for the tests, solvable or not."""

import random


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
