"""The breadth-first search of the Sokoban solver, backward or forward, compiled.

Sets of cells are bitboards of ``W`` words. A *row* is one configuration of boxes. One *entry* of the search log says
which player cells of one row have one depth, so that all of them advance at once with a few shifts. The log is the
queue of the search and, read through the chain of a row, the table of all distances.
"""

# A function that is split up costs compile time and calls here.
# ruff: noqa: PLR0912

import numpy as np

from ...compiled import forget_stale
from . import bits, layout
from .bits import (
    ALL,
    LOW6,
    LOW_32,
    MIX_1,
    MIX_2,
    ONE,
    SHIFT_32,
    ZERO,
    bit_count,
    flip,
    has,
    inner,
    longer,
    lowest_bit,
    moved,
)
from .layout import (
    AREA,
    ARRIVE,
    BOXES,
    CELLS,
    ENTRIES,
    FORWARD,
    LEVELS,
    LIVE,
    MASK_AT,
    MASKS,
    NEAR_AT,
    ROWS,
    STATES,
    STRIDE,
    TARGETS,
    WORDS,
    Board,
    Space,
)

forget_stale(__file__, bits, layout)


@inner
def board_at(boards, index):
    """Return one level of a batch."""
    shape = boards.shape[index]
    at = shape[MASK_AT]
    return Board(shape, boards.masks[at : at + MASKS * shape[WORDS]], boards.near[shape[NEAR_AT] :])


@inner
def new_space(words):
    """Return an empty space with room for a small level, backward unless FORWARD is set."""
    return Space(
        np.empty(64 * (2 * words + 1), np.uint64),
        np.full(128, -1, np.int32),
        np.empty(512 * (words + 1), np.uint64),
        np.zeros(64, np.int64),
        np.zeros(5, np.int64),
    )


@inner
def cleared(space, words):
    """Return an empty backward space, made of the arrays of ``space`` unless these are too large or too small."""
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
        space.rows[at + 2 * words] = ALL
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
def advance_wide(space, board, max_states):
    """Do what :func:`advance` does for boards of any size."""
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
                # Boxes with a player beside them that can be pushed on; backward: that may have been pushed just now.
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
                    known = space.counts[ROWS]
                    other = row_for(space, words, key)
                    if forward and other == known and is_dead(board, key):
                        for j in range(words):
                            space.rows[other * (2 * words + 1) + words + j] = ALL
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
def advance_narrow(space, board, max_states):
    """Do what :func:`advance` does for boards of one word, three times as fast: the loops over words are gone."""
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
        held = space.rows[3 * row]
        free = cells & ~held
        fresh = (here >> stride) | (here << stride) | ((here >> ONE) & to_left) | ((here << ONE) & to_right)
        fresh &= free & ~space.rows[3 * row + 1]
        if fresh != ZERO:
            add_players(space, 1, row, 0, fresh)
        for direction in range(4):
            # Where the box must be free to go, seen from the box (forward) or from the player (backward); the players.
            if direction == 0:
                pushed = held & (free << stride) if forward else held
                players = (pushed << stride) & (ALL if forward else free >> stride)
            elif direction == 1:
                pushed = held & (free >> stride) if forward else held
                players = (pushed >> stride) & (ALL if forward else free << stride)
            elif direction == 2:
                pushed = held & (free << ONE) & to_right if forward else held
                players = (pushed << ONE) & to_right & (ALL if forward else (free >> ONE) & to_left)
            else:
                pushed = held & (free >> ONE) & to_left if forward else held
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
                key[0] = held ^ (ONE << np.uint64(old)) ^ (ONE << np.uint64(new))
                known = space.counts[ROWS]
                other = row_for(space, 1, key)
                if forward and other == known and is_dead(board, key):
                    space.rows[3 * other + 1] = ALL
                bit = ONE << np.uint64(stand)
                if space.rows[3 * other + 1] & bit == ZERO:
                    add_players(space, 1, other, 0, bit)
    return close_level(space)


@inner
def advance(space, board, max_states):
    """Fill and close the next level from the last one, in the direction of ``space``.

    When the number of states passes ``max_states``, the level is dropped and the caller must check the count.
    """
    if board.shape[WORDS] == 1:
        return advance_narrow(space, board, max_states)
    return advance_wide(space, board, max_states)


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
