"""Compiled entry points of the Sokoban solver: labels of a batch of episodes, and searches of whole levels.

``search.py`` implements the search; this module decides when and in which direction to extend it.
"""

# Splitting these functions would cost compile time and calls.
# ruff: noqa: PLR0912, PLR0915

import numpy as np

from ...compiled import compiled, forget_stale
from .. import rows as label
from . import bits, layout, search
from .bits import LOW6, ONE, SHIFT_32, ZERO, copy_words, inner, longer
from .layout import (
    BEYOND,
    BOXES,
    CODE,
    ENTRIES,
    FORWARD,
    LEVELS,
    MASK_AT,
    MASKS,
    OK,
    PLAYER,
    START,
    STATES,
    STRIDE,
    TARGETS,
    UNKNOWN,
    WORDS,
)
from .search import (
    add_players,
    advance,
    board_at,
    cleared,
    close_level,
    depth_of,
    exhausted,
    is_dead,
    move,
    new_space,
    row_for,
    seed_solved,
    slot_of,
)

forget_stale(__file__, bits, layout, search, label)

# Number of log entries up to which only the backward search is extended, because later queries reuse it.
SMALL = 4096


@inner
def meets(front, back, words):
    """Return whether the last finished level of ``front`` contains a state that ``back`` has reached."""
    level = front.counts[LEVELS]
    for entry in range(front.starts[level - 1], front.starts[level]):
        here = entry * (words + 1)
        at = np.int64(front.log[here + words] >> SHIFT_32) * (2 * words + 1)
        row = np.int64(back.slots[slot_of(back.rows, back.slots, front.rows[at:], words)])
        if row >= 0:
            for i in range(words):
                if front.log[here + i] & back.rows[row * (2 * words + 1) + words + i] != ZERO:
                    return True
    return False


@inner
def resolve(back, board, key, player, bound, max_states):
    """Return (``back``, distance of a state) by extending ``back`` and a forward search until they share a state.

    The distance is INFINITE if one search is exhausted before that, BEYOND as soon as it must exceed ``bound``
    (negative: no bound), UNKNOWN if both exceed ``max_states``. If no state of forward depth f has a backward depth of
    at most b, the distance is above f + b; the first shared state therefore gives the exact distance.
    """
    words = board.shape[WORDS]
    depth = depth_of(back, words, key, player)
    if depth >= 0:
        return back, depth
    if is_dead(board, key) or exhausted(back):
        return back, label.INFINITE
    front = new_space(words)
    front.counts[FORWARD] = 1
    first = row_for(front, words, key)
    add_players(front, words, first, player >> 6, ONE << np.uint64(player & LOW6))
    front = close_level(front)
    while True:
        reached = front.counts[LEVELS] + back.counts[LEVELS] - 2
        if 0 <= bound <= reached:
            return back, BEYOND
        front_full, back_full = front.counts[STATES] > max_states, back.counts[STATES] > max_states
        if front_full and back_full:
            return back, UNKNOWN
        ahead = front.counts[ENTRIES] - front.starts[front.counts[LEVELS] - 1]
        behind = back.counts[ENTRIES] - back.starts[back.counts[LEVELS] - 1]
        if back_full or (ahead < behind and back.counts[ENTRIES] > SMALL and not front_full):
            front = advance(front, board, max_states)
        else:
            back = advance(back, board, max_states)
        if exhausted(front) or exhausted(back):
            return back, label.INFINITE
        if front.counts[LEVELS] + back.counts[LEVELS] - 2 > reached and meets(front, back, words):
            return back, reached + 1


@inner
def find_pivot(back, board, keys, players, steps, horizon, max_states):
    """Return (``back``, index of the first state that is not solvable in its budget; steps + 1: none; -1: unknown).

    State t has the budget horizon - t. Feasibility is never regained, so the index is narrowed down from both sides:
    each level of the search decides the state whose budget equals its depth, and, if the search reaches it, the last
    undecided state.
    """
    words = board.shape[WORDS]
    low, high = -1, steps if steps == horizon else steps + 1
    for t in range(high):
        same = t > 0
        for i in range(words if t > 0 else 0):
            same &= keys[t * words + i] == keys[(t - 1) * words + i]
        if not same and is_dead(board, keys[t * words :]):
            high = t
            break
    while low < high - 1:
        depth = back.counts[LEVELS] - 1
        due = horizon - depth
        if low < due < high:
            if depth_of(back, words, keys[due * words :], players[due]) >= 0:
                low = due
            else:
                high = due
        if low < high - 1 and depth_of(back, words, keys[(high - 1) * words :], players[high - 1]) >= 0:
            low = high - 1
        if low == high - 1:
            break
        if exhausted(back):
            while low + 1 < high and depth_of(back, words, keys[(low + 1) * words :], players[low + 1]) >= 0:
                low += 1
            high = low + 1
            break
        back = advance(back, board, max_states)
        if back.counts[STATES] > max_states:
            return back, -1
    return back, high


@compiled
def label_episodes(boards, actions, ends, horizons, turns, max_states):
    """Label a batch of failed episodes.

    Args:
        boards: one level per episode.
        actions: 0..3 for up, down, left, right; other codes change nothing.
        ends: end index of each episode's actions.
        horizons: budgets in actions.
        turns: actions of a turn; steps and horizon of an episode are multiples of it.
        max_states: maximum number of states per search.

    Returns:
        The rows of ``solvers/rows.py``, and all witnesses concatenated.
    """
    count = ends.size
    table = np.zeros((count, 8), np.int64)
    plans = np.empty(16 * count + 16, np.int8)
    planned = 0
    longest, widest = 0, 1
    for episode in range(count):
        widest = max(widest, boards.shape[episode, WORDS])
        longest = max(longest, ends[episode] - (ends[episode - 1] if episode else 0))
    keys = np.empty((longest + 2) * widest, np.uint64)
    players = np.empty(longest + 2, np.int64)
    back = new_space(widest)
    endless = np.int64(-1)  # typed, because numba would compile `resolve` again for a plain constant
    for episode in range(count):
        begin = ends[episode - 1] if episode else 0
        steps = ends[episode] - begin
        result = table[episode]
        result[label.PLAN_END] = planned
        if boards.shape[episode, CODE] != OK:
            continue
        board = board_at(boards, episode)
        words, horizon, turn = board.shape[WORDS], horizons[episode], turns[episode]
        result[label.STATUS] = label.SOLVED
        players[0] = board.shape[PLAYER]
        copy_words(keys, board.masks[START * words :], words)
        for t in range(steps + 1):
            if t > 0:
                copy_words(keys[t * words :], keys[(t - 1) * words :], words)
                players[t] = players[t - 1]
                action = actions[begin + t - 1]
                if 0 <= action < 4:
                    players[t] = move(board, keys[t * words :], players[t - 1], np.int64(action))
            open_boxes = ZERO
            for i in range(words):
                open_boxes |= keys[t * words + i] & ~board.masks[TARGETS * words + i]
            if open_boxes == ZERO:
                result[label.PIVOT] = (t + turn - 1) // turn
                break
        else:
            result[label.STATUS] = label.LIMIT
        if result[label.STATUS] == label.SOLVED:
            continue
        back = seed_solved(cleared(back, words), board, max_states)
        first = -1
        if back.counts[STATES] <= max_states:
            back, first = find_pivot(back, board, keys, players, steps, horizon, max_states)
        if first < 0:
            continue
        result[label.AT_START] = first == 0
        result[label.FALLBACK] = first > steps
        pivot = min(max(first - 1, 0), steps - 1) // turn * turn
        result[label.PIVOT] = pivot // turn
        spare = (longest + 1) * words
        if first > 0:
            depth = depth_of(back, words, keys[pivot * words :], players[pivot])
            while depth < 0 and back.counts[STATES] <= max_states:
                # Without a fatal step the state after the pivot was reached, and the pivot's is one turn further at
                # most. With one, the last state within its turn that is in time was.
                back = advance(back, board, max_states)
                depth = depth_of(back, words, keys[pivot * words :], players[pivot])
            if depth < 0:
                continue
            result[label.BEFORE] = depth
            if planned + depth > plans.size:
                plans = longer(plans, 2 * plans.size + depth)
            base, player = pivot * words, players[pivot]
            here, there = np.empty(words, np.uint64), np.empty(words, np.uint64)
            copy_words(here, keys[base:], words)
            while depth > 0:
                direction, stand = -1, player
                while direction < 0 or depth_of(back, words, there, stand) != depth - 1:
                    direction += 1
                    copy_words(there, here, words)
                    stand = move(board, there, player, direction)
                plans[planned] = direction
                planned += 1
                depth -= 1
                here, there, player = there, here, stand
            result[label.PLAN_END] = planned
        unknown = False
        if first == 0:
            back, result[label.BEFORE] = resolve(back, board, keys, players[0], endless, max_states)
            unknown = result[label.BEFORE] == UNKNOWN
        budget = horizon - turn - pivot
        for direction in range(4 if first > 0 else 0):
            copy_words(keys[spare:], keys[pivot * words :], words)
            stand = move(board, keys[spare:], players[pivot], direction)
            back, depth = resolve(back, board, keys[spare:], stand, budget, max_states)
            unknown |= depth == UNKNOWN
            if 0 <= depth <= budget:
                result[label.FEASIBLE] |= 1 << direction
        if not unknown:
            after = pivot + turn
            back, result[label.AFTER] = resolve(back, board, keys[after * words :], players[after], endless, max_states)
            if result[label.AFTER] != UNKNOWN:
                result[label.STATUS] = label.LABELLED
    return table, plans


@inner
def is_solved(board, key):
    """Return whether every box is on a target."""
    words = board.shape[WORDS]
    open_boxes = ZERO
    for i in range(words):
        open_boxes |= key[i] & ~board.masks[TARGETS * words + i]
    return open_boxes == ZERO


@inner
def same_search(boards, one, two):
    """Return whether the backward searches of two levels of a batch are equal."""
    a, b = boards.shape[one], boards.shape[two]
    if a[CODE] != OK or b[CODE] != OK or a[WORDS] != b[WORDS] or a[STRIDE] != b[STRIDE] or a[BOXES] != b[BOXES]:
        return False
    same = True
    for i in range(MASKS * a[WORDS]):
        same &= boards.masks[a[MASK_AT] + i] == boards.masks[b[MASK_AT] + i]
    return same


@compiled
def measure_episodes(boards, actions, ends, horizons, turns, max_states):
    """Measure every state of a batch of episodes, successes included; episodes of a level in a row share its search.

    Args:
        boards: one level per episode.
        actions: 0..3 for up, down, left, right; other codes change nothing.
        ends: end index of each episode's actions.
        horizons: budgets in actions.
        turns: actions of a turn; steps and horizon of an episode are multiples of it.
        max_states: maximum number of states per search.

    Returns:
        Status of each episode (of ``solvers/rows.py``; SOLVED if turns follow success), and the columns of
        :class:`.rows.Measures`.
    """
    count = ends.size
    statuses, needs, safe, plans = label.new_measures(ends, turns)
    widest = 1
    for episode in range(count):
        widest = max(widest, boards.shape[episode, WORDS])
    key, there = np.empty(widest, np.uint64), np.empty(widest, np.uint64)
    back = new_space(widest)
    state, step, last = 0, 0, -1
    for episode in range(count):
        begin = ends[episode - 1] if episode else 0
        turn, limit = turns[episode], horizons[episode]
        rounds = (ends[episode] - begin) // turn
        first_state, first_step = state, step
        state, step = state + rounds + 1, step + rounds
        statuses[episode] = label.LIMIT
        if boards.shape[episode, CODE] != OK:
            continue
        board = board_at(boards, episode)
        words = board.shape[WORDS]
        if last < 0 or not same_search(boards, last, episode):
            back = seed_solved(cleared(back, words), board, max_states)
        last = episode
        while back.counts[LEVELS] <= limit and back.counts[STATES] <= max_states and not exhausted(back):
            back = advance(back, board, max_states)
        if back.counts[LEVELS] <= limit and back.counts[STATES] > max_states:
            continue
        statuses[episode] = label.LABELLED
        player = board.shape[PLAYER]
        copy_words(key, board.masks[START * words :], words)
        for round_ in range(rounds + 1):
            depth = depth_of(back, words, key, player)
            needs[first_state + round_] = depth if depth <= limit else label.INFINITE
            if round_ == rounds:
                break
            if depth == 0:
                statuses[episode] = label.SOLVED
                break
            left = limit - (round_ + 1) * turn
            for direction in range(4):
                copy_words(there, key, words)
                stand = move(board, there, player, direction)
                if 0 <= depth_of(back, words, there, stand) <= left:
                    safe[first_step + round_] |= 1 << direction
            if turn > 1 and 0 <= depth <= left + turn:
                copy_words(there, key, words)
                stand = player
                for place in range(min(turn, depth)):
                    direction = 0
                    trial = there.copy()
                    new = move(board, trial, stand, direction)
                    while depth_of(back, words, trial, new) != depth - 1 - place:
                        direction += 1
                        copy_words(trial, there, words)
                        new = move(board, trial, stand, direction)
                    plans[first_step + round_, place] = direction
                    copy_words(there, trial, words)
                    stand = new
            for place in range(turn):
                action = actions[begin + round_ * turn + place]
                if 0 <= action < 4 and not is_solved(board, key):
                    player = move(board, key, player, np.int64(action))
    return statuses, needs, safe, plans


@compiled
def explore(boards, depth_limit, max_states):
    """Search the single level of ``boards`` backward from its solved states.

    The search ends at ``depth_limit`` moves or, if that is negative, when it has reached every solvable state. If it
    gave up, the count of states exceeds ``max_states``.
    """
    board = board_at(boards, 0)
    space = seed_solved(new_space(board.shape[WORDS]), board, max_states)
    while space.counts[STATES] <= max_states and (depth_limit < 0 or space.counts[LEVELS] <= depth_limit):
        space = advance(space, board, max_states)
        if exhausted(space):
            break
    return space


@compiled
def depths_after(boards, space, all_actions):
    """Return the depth of the state of ``boards`` and, with ``all_actions``, of the states after the four actions."""
    board = board_at(boards, 0)
    words = board.shape[WORDS]
    depths = np.empty(5 if all_actions else 1, np.int64)
    start, key = board.masks[START * words :], np.empty(words, np.uint64)
    depths[0] = depth_of(space, words, start, board.shape[PLAYER])
    for direction in range(depths.size - 1):
        copy_words(key, start, words)
        player = move(board, key, board.shape[PLAYER], direction)
        depths[1 + direction] = depth_of(space, words, key, player)
    return depths
