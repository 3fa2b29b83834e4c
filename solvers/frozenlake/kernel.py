"""Compiled core of the FrozenLake solver: distances and labels of a batch of maps in one call.

A cell is ``row * width + column``. The distance of a cell is the number of moves over frozen cells to the nearest goal,
computed by a breadth-first search from the goals; holes and disconnected cells have none.
"""

# Splitting this function would cost compile time and calls.
# ruff: noqa: PLR0912, PLR0915

import numpy as np

from ...compiled import compiled, forget_stale
from .. import rows
from ..rows import (
    AFTER,
    AT_START,
    BEFORE,
    FALLBACK,
    FEASIBLE,
    INFINITE,
    LABELLED,
    LOST,
    PIVOT,
    PLAN_END,
    SOLVED,
    STATUS,
    new_measures,
)

forget_stale(__file__, rows)

# Reasons why a text is not a map; `solver.py` turns them into messages.
OK, BAD_CHAR, RAGGED, BAD_START, NO_GOAL, OFF_MAP = range(6)


@compiled
def measure(chars, row, column):
    """Return (problem code, width, height, start cell) of a map; the start is S unless ``row`` is given (not -1)."""
    width = height = at = 0
    start = -1
    starts = goals = 0
    for i in range(chars.size + 1):
        if i == chars.size or chars[i] == 10:
            if height == 0:
                width = at
            if at != width or at == 0:
                return RAGGED, 0, 0, 0
            height += 1
            at = 0
            continue
        char = chars[i]
        if char == 83:  # 'S'
            start = i - height
            starts += 1
        elif char == 71:  # 'G'
            goals += 1
        elif char not in (70, 72):  # 'F', 'H'
            return BAD_CHAR, 0, 0, 0
        at += 1
    if starts != 1:
        return BAD_START, 0, 0, 0
    if goals == 0:
        return NO_GOAL, 0, 0, 0
    if row >= 0:
        if row >= height or column >= width or column < 0:
            return OFF_MAP, 0, 0, 0
        start = row * width + column
    return OK, width, height, start


@compiled
def move(cell, direction, width, height):
    """Return the cell after one move; at the edge of the map it is unchanged."""
    row, column = cell // width, cell % width
    if direction == 0:
        return cell - width if row > 0 else cell
    if direction == 1:
        return cell + width if row < height - 1 else cell
    if direction == 2:
        return cell - 1 if column > 0 else cell
    return cell + 1 if column < width - 1 else cell


@compiled
def distances(chars, width, height, depths, queue):
    """Fill ``depths`` with the distance of every cell, INFINITE if there is none."""
    last = 0
    for cell in range(width * height):
        depths[cell] = INFINITE
        if chars[cell + cell // width] == 71:
            depths[cell] = 0
            queue[last] = cell
            last += 1
    first = 0
    while first < last:
        cell = queue[first]
        first += 1
        for direction in range(4):
            other = move(cell, direction, width, height)
            if depths[other] == INFINITE and chars[other + other // width] != 72:
                depths[other] = depths[cell] + 1
                queue[last] = other
                last += 1


@compiled
def read_map(chars, row, column):
    """Return (problem code, width, height, start cell, distance of every cell)."""
    code, width, height, start = measure(chars, row, column)
    depths = np.empty(width * height, np.int64)
    if code == OK:
        distances(chars, width, height, depths, np.empty(width * height, np.int64))
    return code, width, height, start, depths


@compiled
def label_episodes(text, text_ends, starts, actions, ends, horizons, turns):
    """Label a batch of failed episodes.

    Args:
        text: all maps concatenated (ASCII codes), without their position lines.
        text_ends: end index of each map.
        starts: (episodes, 2) row and column of the first state, -1 for the cell S.
        actions: 0..3 for up, down, left, right; other codes change nothing.
        ends: end index of each episode's actions.
        horizons: budgets in actions.
        turns: actions of a turn; steps and horizon of an episode are multiples of it. In a hole they do nothing.

    Returns:
        Problem codes of the maps; the rows of ``solvers/rows.py``; all witnesses concatenated.
    """
    count = ends.size
    codes = np.zeros(count, np.int64)
    table = np.zeros((count, 8), np.int64)
    largest = longest = 0
    for episode in range(count):
        largest = max(largest, text_ends[episode] - (text_ends[episode - 1] if episode else 0))
        longest = max(longest, ends[episode] - (ends[episode - 1] if episode else 0))
    depths = np.empty(largest, np.int64)
    queue = np.empty(largest, np.int64)
    cells = np.empty(longest + 1, np.int64)
    plans = np.empty(16 * count + largest, np.int8)
    planned = 0
    for episode in range(count):
        result = table[episode]
        result[PLAN_END] = planned
        chars = text[text_ends[episode - 1] if episode else 0 : text_ends[episode]]
        codes[episode], width, height, start = measure(chars, starts[episode, 0], starts[episode, 1])
        if codes[episode] != OK:
            continue
        begin = ends[episode - 1] if episode else 0
        steps, horizon, turn = ends[episode] - begin, horizons[episode], turns[episode]
        cells[0] = start
        kind = 0
        for t in range(steps + 1):
            if t > 0:
                action = actions[begin + t - 1]
                stays = kind == 72 or not 0 <= action < 4
                cells[t] = cells[t - 1] if stays else move(cells[t - 1], action, width, height)
            kind = chars[cells[t] + cells[t] // width]
            if kind == 71:
                result[STATUS], result[PIVOT] = SOLVED, (t + turn - 1) // turn
                break
            if kind == 72 and t <= steps - turn:
                result[STATUS], result[PIVOT] = LOST, (t + turn - 1) // turn
                break
        if result[STATUS] != LABELLED:
            continue
        distances(chars, width, height, depths, queue)
        first = 0
        while first <= steps and 0 <= depths[cells[first]] <= horizon - first:
            first += 1
        pivot = min(max(first - 1, 0), steps - 1) // turn * turn
        result[PIVOT] = pivot // turn
        result[AT_START] = first == 0
        result[FALLBACK] = first > steps
        result[BEFORE] = depths[cells[pivot]]
        result[AFTER] = depths[cells[pivot + turn]]
        if first == 0:
            continue
        cell = cells[pivot]
        for direction in range(4):
            other = move(cell, direction, width, height)
            if 0 <= depths[other] <= horizon - turn - pivot:
                result[FEASIBLE] |= 1 << direction
        if planned + depths[cell] > plans.size:
            more = np.empty(2 * plans.size + largest, np.int8)
            for i in range(planned):
                more[i] = plans[i]
            plans = more
        while depths[cell] > 0:
            direction = 0
            while depths[move(cell, direction, width, height)] != depths[cell] - 1:
                direction += 1
            plans[planned] = direction
            planned += 1
            cell = move(cell, direction, width, height)
        result[PLAN_END] = planned
    return codes, table, plans


@compiled
def measure_episodes(text, text_ends, starts, actions, ends, horizons, turns):
    """Measure every state of a batch of episodes, successes included.

    Args:
        text: all maps concatenated (ASCII codes), without their position lines.
        text_ends: end index of each map.
        starts: (episodes, 2) row and column of the first state, -1 for the cell S.
        actions: 0..3 for up, down, left, right; other codes change nothing.
        ends: end index of each episode's actions.
        horizons: budgets in actions.
        turns: actions of a turn; steps and horizon of an episode are multiples of it.

    Returns:
        Problem codes of the maps; status of each episode (SOLVED or LOST if turns follow the end), and the columns of
        :class:`..rows.Measures`.
    """
    count = ends.size
    codes = np.zeros(count, np.int64)
    statuses, needs, safe, plans = new_measures(ends, turns)
    largest = 0
    for episode in range(count):
        largest = max(largest, text_ends[episode] - (text_ends[episode - 1] if episode else 0))
    depths = np.empty(largest, np.int64)
    queue = np.empty(largest, np.int64)
    state = step = 0
    for episode in range(count):
        begin = ends[episode - 1] if episode else 0
        turn, limit = turns[episode], horizons[episode]
        rounds = (ends[episode] - begin) // turn
        first_state, first_step = state, step
        state, step = state + rounds + 1, step + rounds
        chars = text[text_ends[episode - 1] if episode else 0 : text_ends[episode]]
        codes[episode], width, height, cell = measure(chars, starts[episode, 0], starts[episode, 1])
        if codes[episode] != OK:
            continue
        distances(chars, width, height, depths, queue)
        for round_ in range(rounds + 1):
            depth, kind = depths[cell], chars[cell + cell // width]
            needs[first_state + round_] = depth if depth <= limit else INFINITE
            if round_ == rounds:
                break
            if kind in (71, 72):
                statuses[episode] = SOLVED if kind == 71 else LOST
                break
            left = limit - (round_ + 1) * turn
            for direction in range(4):
                if 0 <= depths[move(cell, direction, width, height)] <= left:
                    safe[first_step + round_] |= 1 << direction
            if turn > 1 and 0 <= depth <= left + turn:
                there = cell
                for place in range(min(turn, depth)):
                    direction = 0
                    while depths[move(there, direction, width, height)] != depth - 1 - place:
                        direction += 1
                    plans[first_step + round_, place] = direction
                    there = move(there, direction, width, height)
            for place in range(turn):
                action = actions[begin + round_ * turn + place]
                if 0 <= action < 4 and chars[cell + cell // width] not in (71, 72):
                    cell = move(cell, action, width, height)
    return codes, statuses, needs, safe, plans
