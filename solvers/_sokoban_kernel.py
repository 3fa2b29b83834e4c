"""The compiled core of the Sokoban solver: one breadth-first search, backward or forward, and the labels read from it.

Sets of cells are the bitboards of ``_sokoban_board.py``, ``W`` words each. A *row* is one configuration of boxes. One
*entry* of the search log says which player cells of one row have one depth, so that all of them advance at once with a
few shifts. The log is the queue of the search and, read through the chain of a row, the table of all distances. Of
other compiled code only ``_sokoban_bits.py`` is called, because numba's cache notices changes of this file only.
"""

# A function that is split up costs compile time and calls here.
# ruff: noqa: PLR0912, PLR0915

import numpy as np
from numba import njit

from . import _label_rows as label
from ._sokoban_bits import (
    LOW6,
    LOW_32,
    MIX_1,
    MIX_2,
    ONE,
    SHIFT_32,
    ZERO,
    bit_count,
    copy_words,
    flip,
    has,
    inner,
    longer,
    lowest_bit,
    moved,
)
from ._sokoban_layout import (
    AREA,
    BEYOND,
    BOXES,
    CELLS,
    CODE,
    ENTRIES,
    LEVELS,
    LIVE,
    MASK_AT,
    MASKS,
    NEAR_AT,
    OK,
    PLAYER,
    ROWS,
    START,
    STATES,
    TARGETS,
    UNKNOWN,
    WORDS,
    Board,
    Space,
)

# Up to so many log entries a backward search is extended alone: it serves the next question too.
SMALL = 4096


@inner
def board_at(boards, index):
    """Return one level of a batch."""
    shape = boards.shape[index]
    at = shape[MASK_AT]
    return Board(shape, boards.masks[at : at + MASKS * shape[WORDS]], boards.near[shape[NEAR_AT] :])


@inner
def new_space(words):
    """Return an empty space with room for a small level."""
    return Space(
        np.empty(64 * (2 * words + 1), np.uint64),
        np.full(128, -1, np.int32),
        np.empty(512 * (words + 1), np.uint64),
        np.zeros(64, np.int64),
        np.zeros(4, np.int64),
    )


@inner
def cleared(space, words):
    """Return an empty space, made of the arrays of ``space`` unless these are too large or too small."""
    if space.slots.size > 128 or space.rows.size != 64 * (2 * words + 1):
        return new_space(words)
    space.slots[:] = -1
    space.counts[:] = 0
    space.starts[0] = 0
    return space


@inner
def slot_of(rows, slots, key, words):
    """Return the slot that holds the row with the boxes ``key``, or the free slot where it belongs."""
    mixed = ZERO
    for i in range(words):
        mixed = (mixed ^ key[i]) * MIX_1
        mixed ^= mixed >> SHIFT_32
    mixed *= MIX_2
    mixed ^= mixed >> SHIFT_32
    mask = slots.size - 1
    slot = np.int64(mixed & np.uint64(mask))
    while slots[slot] >= 0:
        at = np.int64(slots[slot]) * (2 * words + 1)
        same = True
        for i in range(words):
            same &= rows[at + i] == key[i]
        if same:
            break
        slot = (slot + 1) & mask
    return slot


@inner
def with_room(space, words, rows, entries):
    """Return ``space`` with place for so many more rows and entries."""
    table, slots, log, starts, counts = space
    need = (counts[ROWS] + rows) * (2 * words + 1)
    if need > table.size:
        table = longer(table, need + (need >> 1))
    if 2 * (counts[ROWS] + rows) > slots.size:
        slots = np.full(slots.size * 4, -1, np.int32)
        for row in range(counts[ROWS]):
            slots[slot_of(table, slots, table[row * (2 * words + 1) :], words)] = row
    need = (counts[ENTRIES] + entries) * (words + 1)
    if need > log.size:
        log = longer(log, need + (need >> 1))
    return Space(table, slots, log, starts, counts)


@inner
def row_for(space, words, key):
    """Return the row with the boxes ``key``, made when new. There must be room."""
    slot = slot_of(space.rows, space.slots, key, words)
    row = np.int64(space.slots[slot])
    if row < 0:
        row = space.counts[ROWS]
        space.counts[ROWS] += 1
        space.slots[slot] = row
        at = row * (2 * words + 1)
        for i in range(words):
            space.rows[at + i] = key[i]
            space.rows[at + words + i] = ZERO
        space.rows[at + 2 * words] = ~ZERO
    return row


@inner
def add_players(space, words, row, i, players):
    """Put unseen player cells (word ``i``) of ``row`` into the level being filled. There must be room."""
    at = row * (2 * words + 1)
    space.rows[at + words + i] |= players
    entry = np.int64(space.rows[at + 2 * words])
    if entry < space.starts[space.counts[LEVELS]]:
        previous = entry + 1
        entry = space.counts[ENTRIES]
        space.counts[ENTRIES] += 1
        space.rows[at + 2 * words] = np.uint64(entry)
        for j in range(words):
            space.log[entry * (words + 1) + j] = ZERO
        space.log[entry * (words + 1) + words] = (np.uint64(row) << SHIFT_32) | np.uint64(previous)
    space.log[entry * (words + 1) + i] |= players
    space.counts[STATES] += bit_count(players)


@inner
def close_level(space):
    """Finish the level being filled: the next one starts behind it."""
    starts = space.starts
    space.counts[LEVELS] += 1
    if space.counts[LEVELS] == starts.size:
        starts = longer(starts, 2 * starts.size)
    starts[space.counts[LEVELS]] = space.counts[ENTRIES]
    return Space(space.rows, space.slots, space.log, starts, space.counts)


@inner
def drop_level(space, words):
    """Undo the level being filled, so that only whole levels remain. ``counts[STATES]`` stays: it says 'too many'."""
    for entry in range(space.counts[ENTRIES] - 1, space.starts[space.counts[LEVELS]] - 1, -1):
        here = entry * (words + 1)
        at = np.int64(space.log[here + words] >> SHIFT_32) * (2 * words + 1)
        for i in range(words):
            space.rows[at + words + i] ^= space.log[here + i]
        space.rows[at + 2 * words] = (space.log[here + words] & LOW_32) - ONE
    space.counts[ENTRIES] = space.starts[space.counts[LEVELS]]
    return space


@inner
def exhausted(space):
    """Tell whether the last finished level is empty: the search has met everything it can."""
    return space.starts[space.counts[LEVELS]] == space.starts[space.counts[LEVELS] - 1]


@inner
def seed_solved(space, board, max_states):
    """Fill level 0 with every solved state: each choice of targets for the boxes, the player on any free cell."""
    words, boxes = board.shape[WORDS], board.shape[BOXES]
    spots = np.empty(64 * words, np.int64)
    size = 0
    for cell in range(64 * words):
        if has(board.masks, TARGETS * words, cell):
            spots[size] = cell
            size += 1
    chosen = np.arange(boxes)
    key = np.empty(words, np.uint64)
    while True:
        key[:] = 0
        for i in range(boxes):
            flip(key, 0, spots[chosen[i]])
        space = with_room(space, words, boxes, boxes)
        row = row_for(space, words, key)
        for i in range(words):
            players = board.masks[AREA * words + i] & ~key[i]
            if players != ZERO:
                add_players(space, words, row, i, players)
        i = boxes - 1
        while i >= 0 and chosen[i] == size - boxes + i:
            i -= 1
        if i < 0 or space.counts[STATES] > max_states:
            break
        chosen[i] += 1
        for j in range(i + 1, boxes):
            chosen[j] = chosen[j - 1] + 1
    return close_level(space)


@inner
def advance(space, board, forward, max_states):
    """Fill and close the next level from the last one, by moves (``forward``) or by moves undone.

    When the number of states passes ``max_states``, the level is dropped and the caller must check the count.
    """
    words, boxes = board.shape[WORDS], board.shape[BOXES]
    free = np.empty(words, np.uint64)
    pushed = np.empty(words, np.uint64)
    key = np.empty(words, np.uint64)
    level = space.counts[LEVELS]
    for entry in range(space.starts[level - 1], space.starts[level]):
        if space.counts[STATES] > max_states:
            return drop_level(space, words)
        new_rows, new_entries = space.counts[ROWS] + 4 * boxes, space.counts[ENTRIES] + 4 * boxes + 1
        full = new_rows * (2 * words + 1) > space.rows.size or new_entries * (words + 1) > space.log.size
        if full or 2 * new_rows > space.slots.size:
            space = with_room(space, words, 4 * boxes, 4 * boxes + 1)
        here = entry * (words + 1)
        row = np.int64(space.log[here + words] >> SHIFT_32)
        at = row * (2 * words + 1)
        for i in range(words):
            free[i] = board.masks[CELLS * words + i] & ~space.rows[at + i]
        for direction in range(4):
            back = direction ^ 1
            for i in range(words):
                # Boxes with a player beside them that can be pushed on; backward: that may have been pushed just now.
                pushed[i] = space.rows[at + i]
                if forward:
                    pushed[i] &= moved(free, 0, i, back, board)
            for i in range(words):
                fresh = moved(space.log, here, i, direction, board) & free[i] & ~space.rows[at + words + i]
                if fresh != ZERO:
                    add_players(space, words, row, i, fresh)
                players = space.log[here + i] & moved(pushed, 0, i, back, board)
                if not forward and players != ZERO:
                    players &= moved(free, 0, i, direction, board)
                while players != ZERO:
                    cell = 64 * i + lowest_bit(players)
                    players &= players - ONE
                    old = np.int64(board.near[4 * cell + direction])
                    new = np.int64(board.near[4 * old + direction]) if forward else cell
                    stand = old if forward else np.int64(board.near[4 * cell + back])
                    if forward and not has(board.masks, LIVE * words, new):
                        continue
                    for j in range(words):
                        key[j] = space.rows[at + j]
                    flip(key, 0, old)
                    flip(key, 0, new)
                    known = space.counts[ROWS]
                    other = row_for(space, words, key)
                    if forward and other == known and is_dead(board, key):
                        for j in range(words):
                            space.rows[other * (2 * words + 1) + words + j] = ~ZERO
                    if not has(space.rows, other * (2 * words + 1) + words, stand):
                        add_players(space, words, other, stand >> 6, ONE << np.uint64(stand & LOW6))
    return close_level(space)


@inner
def is_dead(board, key):
    """Tell whether a box stands where no target can be reached, or some boxes off target block one another for good.

    The largest set of boxes is kept in which each, with the others of the set as walls, is blocked on both axes: by a
    wall on one side, or by cells on both sides that are dead for a box. None of the set can move first.
    """
    words = board.shape[WORDS]
    stuck = np.empty(words, np.uint64)
    for i in range(words):
        stuck[i] = key[i]
        if stuck[i] & ~board.masks[LIVE * words + i] != ZERO:
            return True
    changed = True
    while changed:
        changed = False
        for i in range(words):
            rest = stuck[i]
            while rest != ZERO:
                cell = 64 * i + lowest_bit(rest)
                rest &= rest - ONE
                for axis in (0, 2):
                    one, two = np.int64(board.near[4 * cell + axis]), np.int64(board.near[4 * cell + axis + 1])
                    if one < 0 or two < 0 or has(stuck, 0, one) or has(stuck, 0, two):
                        continue
                    if has(board.masks, LIVE * words, one) or has(board.masks, LIVE * words, two):
                        flip(stuck, 0, cell)
                        changed = True
                        break
    off_target = ZERO
    for i in range(words):
        off_target |= stuck[i] & ~board.masks[TARGETS * words + i]
    return off_target != ZERO


@inner
def depth_of(space, words, key, player):
    """Return the depth of a state, or -1 when the search has not met it."""
    row = np.int64(space.slots[slot_of(space.rows, space.slots, key, words)])
    at = row * (2 * words + 1)
    if row < 0 or not has(space.rows, at + words, player):
        return -1
    entry = np.int64(space.rows[at + 2 * words])
    while not has(space.log, entry * (words + 1), player):
        entry = np.int64(space.log[entry * (words + 1) + words] & LOW_32) - 1
    low, high = 0, space.counts[LEVELS]
    while high - low > 1:
        middle = (low + high) >> 1
        if space.starts[middle] <= entry:
            low = middle
        else:
            high = middle
    return low


@inner
def move(board, key, player, direction):
    """Make one move on the box bitboard ``key`` in place; return the player's new cell."""
    ahead = np.int64(board.near[4 * player + direction])
    if ahead < 0:
        return player
    if has(key, 0, ahead):
        behind = np.int64(board.near[4 * ahead + direction])
        if behind < 0 or has(key, 0, behind):
            return player
        flip(key, 0, ahead)
        flip(key, 0, behind)
    return ahead


@inner
def meets(front, back, words):
    """Tell whether the last finished level of ``front`` holds a state that ``back`` has met."""
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
    """Return (``back``, distance of a state) by extending ``back`` and a forward search until they meet.

    The distance is INFINITE when either search met everything it can without the other, BEYOND as soon as it must be
    above ``bound`` (negative: no bound), UNKNOWN when both passed ``max_states``. Whenever no state of forward depth f
    has backward depth at most b, the distance is above f + b; so the first meeting gives it exactly.
    """
    words = board.shape[WORDS]
    depth = depth_of(back, words, key, player)
    if depth >= 0:
        return back, depth
    if is_dead(board, key) or exhausted(back):
        return back, label.INFINITE
    front = new_space(words)
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
            front = advance(front, board, True, max_states)
        else:
            back = advance(back, board, False, max_states)
        if exhausted(front) or exhausted(back):
            return back, label.INFINITE
        if front.counts[LEVELS] + back.counts[LEVELS] - 2 > reached and meets(front, back, words):
            return back, reached + 1


@inner
def find_pivot(back, board, keys, players, steps, horizon, max_states):
    """Return (``back``, index of the first state that is not solvable in its budget; steps + 1: none; -1: unknown).

    State t has the budget horizon - t. Feasibility never returns once lost, so it is enough to close in on one place
    from both sides: after each level, the state whose budget has just been covered is decided, and so is the last one
    not known to be infeasible when it was met.
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
        back = advance(back, board, False, max_states)
        if back.counts[STATES] > max_states:
            return back, -1
    return back, high


@njit(cache=True, error_model="numpy")
def label_episodes(boards, actions, ends, horizons, max_states):
    """Label a batch of failed episodes.

    Args:
        boards: one level an episode.
        actions: 0..3 for up, down, left, right; anything else changes nothing.
        ends: where the actions of each episode end.
        horizons: turn budgets.
        max_states: cap of one search.

    Returns:
        The rows of ``_label_rows.py``, and all witnesses behind one another.
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
    endless = np.int64(-1)  # a plain -1 would make numba compile `resolve` once more for the constant
    for episode in range(count):
        begin = ends[episode - 1] if episode else 0
        steps = ends[episode] - begin
        result = table[episode]
        result[label.PLAN_END] = planned
        if boards.shape[episode, CODE] != OK:
            continue
        board = board_at(boards, episode)
        words, horizon = board.shape[WORDS], horizons[episode]
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
                result[label.PIVOT] = t
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
        pivot = min(max(first - 1, 0), steps - 1)
        result[label.PIVOT] = pivot
        spare = (longest + 1) * words
        if first > 0:
            depth = depth_of(back, words, keys[pivot * words :], players[pivot])
            while depth < 0 and back.counts[STATES] <= max_states:
                # Only without a fatal step: the state after the pivot was met, the pivot's is at most one further.
                back = advance(back, board, False, max_states)
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
        budget = horizon - 1 - pivot
        for direction in range(4 if first > 0 else 0):
            copy_words(keys[spare:], keys[pivot * words :], words)
            stand = move(board, keys[spare:], players[pivot], direction)
            back, depth = resolve(back, board, keys[spare:], stand, budget, max_states)
            unknown |= depth == UNKNOWN
            if 0 <= depth <= budget:
                result[label.FEASIBLE] |= 1 << direction
        if not unknown:
            after = pivot + 1
            back, result[label.AFTER] = resolve(back, board, keys[after * words :], players[after], endless, max_states)
            if result[label.AFTER] != UNKNOWN:
                result[label.STATUS] = label.LABELLED
    return table, plans


@njit(cache=True, error_model="numpy")
def explore(boards, depth_limit, max_states):
    """Search the one level of ``boards`` backward from its solved states.

    It ends at ``depth_limit`` moves or, if that is negative, when every solvable state was met; the count of states is
    above ``max_states`` when it gave up.
    """
    board = board_at(boards, 0)
    space = seed_solved(new_space(board.shape[WORDS]), board, max_states)
    while space.counts[STATES] <= max_states and (depth_limit < 0 or space.counts[LEVELS] <= depth_limit):
        space = advance(space, board, False, max_states)
        if exhausted(space):
            break
    return space


@njit(cache=True, error_model="numpy")
def depths_after(boards, space, all_actions):
    """Return the depth of the state of ``boards`` and, with ``all_actions``, of the states after the four actions."""
    board = board_at(boards, 0)
    words = board.shape[WORDS]
    found = np.empty(5 if all_actions else 1, np.int64)
    start, key = board.masks[START * words :], np.empty(words, np.uint64)
    found[0] = depth_of(space, words, start, board.shape[PLAYER])
    for direction in range(found.size - 1):
        copy_words(key, start, words)
        player = move(board, key, board.shape[PLAYER], direction)
        found[1 + direction] = depth_of(space, words, key, player)
    return found
