"""Compiled breadth-first search of large Sokoban levels, backward from success or forward from a state.

A set of cells is a *bitboard*: ``W`` words of 64 bits, cell c at bit c (see ``board.py``). A *row* is one configuration
of boxes. An *entry* of the search log is the set of a row's player cells at one depth, which a few shifts advance
together. The log is the queue of the search and, through the chain of each row's entries, the table of all distances.
``large.py`` decides when and in which direction to extend a search.
"""

# Splitting these functions would cost compile time and calls.
# ruff: noqa: PLR0912

import numpy as np

from ...core.compiled import compiled, forget_stale
from . import bits
from .bits import (
    ALL,
    AREA,
    ARRIVE,
    BOXES,
    CELLS,
    ENTRIES,
    FORWARD,
    LEVELS,
    LIVE,
    LOW6,
    LOW_32,
    MIX_1,
    MIX_2,
    ONE,
    ROWS,
    SHIFT_32,
    STATES,
    STRIDE,
    TARGETS,
    WORDS,
    ZERO,
    Board,
    Space,
    bit_count,
    flip,
    has,
    inner,
    longer,
    lowest_bit,
)

forget_stale(__file__, bits)

# Special values of distances.
INFINITE, BEYOND, UNKNOWN = -1, -2, -3

# Number of log entries up to which only the backward search is extended, because later queries reuse it.
SMALL = 4096


@inner
def moved(source, base, i, direction, board):
    """Return word ``i`` of a bitboard after every cell of it moved one step (0..3 = up, down, left, right)."""
    words = board.shape[WORDS]
    distance = board.shape[STRIDE] if direction < 2 else 1
    part = distance & LOW6
    # Only levels wider than 63 cells shift by whole words.
    whole = distance >> 6
    value = ZERO
    if direction & 1:
        j = i - whole
        if j >= 0:
            value = source[base + j] << np.uint64(part)
        if part != 0 and j >= 1:
            value |= source[base + j - 1] >> np.uint64(64 - part)
    else:
        j = i + whole
        if j < words:
            value = source[base + j] >> np.uint64(part)
        if part != 0 and j + 1 < words:
            value |= source[base + j + 1] << np.uint64(64 - part)
    return value & board.masks[(ARRIVE + direction) * words + i]


@inner
def new_space(words):
    """Return an empty backward search."""
    return Space(
        np.empty(64 * (2 * words + 1), np.uint64),
        np.full(128, -1, np.int32),
        np.empty(512 * (words + 1), np.uint64),
        np.zeros(64, np.int64),
        np.zeros(5, np.int64),
    )


@inner
def slot_of(rows, slots, key, words):
    """Return the slot of the row with the boxes ``key``, or the free slot for it."""
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
    """Return ``space`` with capacity for a number of further rows and entries."""
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
    """Return the row with the boxes ``key``, created if new. There must be capacity for it."""
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
        space.rows[at + 2 * words] = ALL
    return row


@inner
def add_players(space, words, row, i, players):
    """Add new player cells (word ``i``) of ``row`` to the level that is being filled. There must be capacity."""
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
    """Finish the level that is being filled."""
    starts = space.starts
    space.counts[LEVELS] += 1
    if space.counts[LEVELS] == starts.size:
        starts = longer(starts, 2 * starts.size)
    starts[space.counts[LEVELS]] = space.counts[ENTRIES]
    return Space(space.rows, space.slots, space.log, starts, space.counts)


@inner
def drop_level(space, words):
    """Discard the unfinished level; ``counts[STATES]`` keeps its value, which reports too many states."""
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
    """Return whether the last finished level is empty, so that the search is complete."""
    return space.starts[space.counts[LEVELS]] == space.starts[space.counts[LEVELS] - 1]


@inner
def new_search(board, max_states):
    """Return a backward search whose level 0 is every solved state: boxes on targets, the player on any free cell."""
    words, boxes = board.shape[WORDS], board.shape[BOXES]
    space = new_space(words)
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
def advance_wide(space, board, max_states):
    """Implement :func:`advance` for boards of any size."""
    words, boxes = board.shape[WORDS], board.shape[BOXES]
    free = np.empty(words, np.uint64)
    pushed = np.empty(words, np.uint64)
    key = np.empty(words, np.uint64)
    level, forward = space.counts[LEVELS], space.counts[FORWARD] == 1
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
        for i in range(words):
            fresh = ZERO
            for direction in range(4):
                fresh |= moved(space.log, here, i, direction, board)
            fresh &= free[i] & ~space.rows[at + words + i]
            if fresh != ZERO:
                add_players(space, words, row, i, fresh)
        for direction in range(4):
            back = direction ^ 1
            for i in range(words):
                # Boxes that a neighbouring player can push; backward: that the player may just have pushed.
                pushed[i] = space.rows[at + i]
                if forward:
                    pushed[i] &= moved(free, 0, i, back, board)
            for i in range(words):
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
                    row_count = space.counts[ROWS]
                    other = row_for(space, words, key)
                    if forward and other == row_count and is_dead(board, key):
                        for j in range(words):
                            space.rows[other * (2 * words + 1) + words + j] = ALL
                    if not has(space.rows, other * (2 * words + 1) + words, stand):
                        add_players(space, words, other, stand >> 6, ONE << np.uint64(stand & LOW6))
    return close_level(space)


@inner
def is_dead(board, key):
    """Return whether a box is on a dead cell, or boxes off target block each other permanently.

    The function computes the largest set of boxes in which each is blocked on both axes, if the others are walls: by a
    wall on one side, or by cells on both sides that are dead for a box. No box of the set can move first.
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
def advance_narrow(space, board, max_states):
    """Implement :func:`advance` for boards of one word, three times as fast, without loops over words."""
    boxes, stride = board.shape[BOXES], np.uint64(board.shape[STRIDE])
    cells, live = board.masks[CELLS], board.masks[LIVE]
    to_left, to_right = board.masks[ARRIVE + 2], board.masks[ARRIVE + 3]
    key = np.empty(1, np.uint64)
    level, forward = space.counts[LEVELS], space.counts[FORWARD] == 1
    for entry in range(space.starts[level - 1], space.starts[level]):
        if space.counts[STATES] > max_states:
            return drop_level(space, 1)
        new_rows, new_entries = space.counts[ROWS] + 4 * boxes, space.counts[ENTRIES] + 4 * boxes + 1
        if 3 * new_rows > space.rows.size or 2 * new_entries > space.log.size or 2 * new_rows > space.slots.size:
            space = with_room(space, 1, 4 * boxes, 4 * boxes + 1)
        here = space.log[2 * entry]
        row = np.int64(space.log[2 * entry + 1] >> SHIFT_32)
        box_cells = space.rows[3 * row]
        free = cells & ~box_cells
        fresh = (here >> stride) | (here << stride) | ((here >> ONE) & to_left) | ((here << ONE) & to_right)
        fresh &= free & ~space.rows[3 * row + 1]
        if fresh != ZERO:
            add_players(space, 1, row, 0, fresh)
        for direction in range(4):
            # Free destinations relative to the box (forward) or to the player (backward), and the player cells.
            if direction == 0:
                pushed = box_cells & (free << stride) if forward else box_cells
                players = (pushed << stride) & (ALL if forward else free >> stride)
            elif direction == 1:
                pushed = box_cells & (free >> stride) if forward else box_cells
                players = (pushed >> stride) & (ALL if forward else free << stride)
            elif direction == 2:
                pushed = box_cells & (free << ONE) & to_right if forward else box_cells
                players = (pushed << ONE) & to_right & (ALL if forward else (free >> ONE) & to_left)
            else:
                pushed = box_cells & (free >> ONE) & to_left if forward else box_cells
                players = (pushed >> ONE) & to_left & (ALL if forward else (free << ONE) & to_right)
            players &= here
            while players != ZERO:
                cell = lowest_bit(players)
                players &= players - ONE
                old = np.int64(board.near[4 * cell + direction])
                new = np.int64(board.near[4 * old + direction]) if forward else cell
                stand = old if forward else np.int64(board.near[4 * cell + (direction ^ 1)])
                if forward and (live >> np.uint64(new)) & ONE == ZERO:
                    continue
                key[0] = box_cells ^ (ONE << np.uint64(old)) ^ (ONE << np.uint64(new))
                row_count = space.counts[ROWS]
                other = row_for(space, 1, key)
                if forward and other == row_count and is_dead(board, key):
                    space.rows[3 * other + 1] = ALL
                bit = ONE << np.uint64(stand)
                if space.rows[3 * other + 1] & bit == ZERO:
                    add_players(space, 1, other, 0, bit)
    return close_level(space)


@inner
def advance(space, board, max_states):
    """Compute the next level from the last one, in the direction of ``space``.

    If the number of states exceeds ``max_states``, the level is discarded, and the caller must check the count.
    """
    if board.shape[WORDS] == 1:
        return advance_narrow(space, board, max_states)
    return advance_wide(space, board, max_states)


@inner
def depth_of(space, words, key, player):
    """Return the depth of a state, or -1 if the search has not reached it."""
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
        return back, INFINITE
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
            return back, INFINITE
        if front.counts[LEVELS] + back.counts[LEVELS] - 2 > reached and meets(front, back, words):
            return back, reached + 1


# Entry points. They take and return plain tuples of arrays, which cost a tenth of the time of named ones per call.


@compiled
def begin(board, max_states):
    """Return the arrays of a search whose level 0 is every solved state."""
    space = new_search(Board(*board), max_states)
    return space.rows, space.slots, space.log, space.starts, space.counts


@compiled
def advanced(space, board, max_states):
    """Return the arrays of a search after one more level; see :func:`advance`."""
    space = advance(Space(*space), Board(*board), max_states)
    return space.rows, space.slots, space.log, space.starts, space.counts


@compiled
def depth_in(space, words, key, player):
    """Return the depth of a state in a search; see :func:`depth_of`."""
    return depth_of(Space(*space), words, key, player)


@compiled
def dead(board, key):
    """Return whether boxes block each other for ever; see :func:`is_dead`."""
    return is_dead(Board(*board), key)


@compiled
def met(space, board, key, player, bound, max_states):
    """Return the arrays of a search and the distance of a state; see :func:`resolve`."""
    space, distance = resolve(Space(*space), Board(*board), key, player, bound, max_states)
    return (space.rows, space.slots, space.log, space.starts, space.counts), distance
