"""The compiled core of the Sokoban solver: one breadth-first search, backward or forward, and its look-ups.

Sets of cells are the bitboards of ``_sokoban_board.py``, ``W`` words each. A *row* is one configuration of boxes. One
*entry* of the search log says which player cells of one row have one depth, so that all of them advance at once with a
few shifts. The log is the queue of the search and, read through the chain of a row, the table of all distances. Nothing
compiled in other files is called, because numba's cache notices a change of a function's own file only.
"""

# A function that is split up costs compile time and calls here.
# ruff: noqa: PLR0912, PLR0915

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._sokoban_board import BOXES, HEIGHT, LEFT, MASK_AT, NEAR_AT, PLAYER, STRIDE, TOP, WORDS

MASK = NDArray[np.uint64]
INTS = NDArray[np.int64]

ONE = np.uint64(1)
LOW6 = 63
MIX_1 = np.uint64(0x9E3779B97F4A7C15)
MIX_2 = np.uint64(0xD6E8FEB86659FD93)
SHIFT_32 = np.uint64(32)

# Trailing zeros of a word by de Bruijn multiplication: TRAILING[(lowest * DE_BRUIJN) >> 58].
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
SHIFT_58 = np.uint64(58)
TRAILING = np.zeros(64, np.int64)
for _i in range(64):
    TRAILING[((1 << _i) * 0x03F79D71B4CB0A89 % (1 << 64)) >> 58] = _i


class Board(NamedTuple):
    """One level: bitboards of shape (W,), neighbours, and ``shape`` = a row of ``Boards.shape``."""

    shape: INTS
    cells: MASK
    targets: MASK
    boxes: MASK
    live: MASK
    inner_left: MASK
    inner_right: MASK
    area: MASK
    near: NDArray[np.int32]


class Space(NamedTuple):
    """Rows, their hash table, and the log of a search. ``count`` is [rows, entries, finished levels, states]."""

    boxes: MASK
    seen: MASK
    last: INTS
    slots: NDArray[np.int32]
    bits: MASK
    row: NDArray[np.int32]
    previous: NDArray[np.int32]
    starts: INTS
    count: INTS


@njit(cache=True)
def lowest_bit(word):
    """Return the index of the lowest set bit of a non-zero word."""
    low = word & (~word + ONE)
    return TRAILING[(low * DE_BRUIJN) >> SHIFT_58]


@njit(cache=True)
def bit_count(word):
    """Return the number of set bits."""
    total = 0
    while word != np.uint64(0):
        word &= word - ONE
        total += 1
    return total


@njit(cache=True)
def has(board, base, cell):
    """Tell whether ``cell`` is in the bitboard that starts at ``base``."""
    return (board[base + (cell >> 6)] >> np.uint64(cell & LOW6)) & ONE != np.uint64(0)


@njit(cache=True)
def flip(board, base, cell):
    """Add or remove ``cell``."""
    board[base + (cell >> 6)] ^= ONE << np.uint64(cell & LOW6)


@njit(cache=True)
def shifted(board, base, words, i, distance):
    """Return word ``i`` of the bitboard moved by ``distance`` cells (bit j goes to j + distance)."""
    value = np.uint64(0)
    if distance >= 0:
        whole = distance >> 6
        part = distance & LOW6
        j = i - whole
        if j >= 0:
            value = board[base + j] << np.uint64(part)
            if part != 0 and j >= 1:
                value |= board[base + j - 1] >> np.uint64(64 - part)
    else:
        whole = (-distance) >> 6
        part = (-distance) & LOW6
        j = i + whole
        if j < words:
            value = board[base + j] >> np.uint64(part)
            if part != 0 and j + 1 < words:
                value |= board[base + j + 1] << np.uint64(64 - part)
    return value


@njit(cache=True)
def step_of(direction, stride):
    """Return the change of the cell index for a direction 0..3 = up, down, left, right."""
    if direction == 0:
        return -stride
    if direction == 1:
        return stride
    return -1 if direction == 2 else 1


@njit(cache=True)
def new_space(words):
    """Return a space with room for a small level; it grows by itself and is reused with :func:`clear`."""
    return Space(
        np.empty(64 * words, np.uint64),
        np.empty(64 * words, np.uint64),
        np.empty(64, np.int64),
        np.full(256, -1, np.int32),
        np.empty(512 * words, np.uint64),
        np.empty(512, np.int32),
        np.empty(512, np.int32),
        np.zeros(64, np.int64),
        np.zeros(4, np.int64),
    )


@njit(cache=True)
def clear(space, words):
    """Return an empty space, reusing the arrays of a small one."""
    if space.slots.size > 1024 or space.boxes.size < 64 * words:
        return new_space(words)
    space.slots[:] = -1
    space.count[:] = 0
    space.starts[0] = 0
    return space


@njit(cache=True)
def slot_of(boxes, slots, key, base, words):
    """Return the slot that holds the row equal to ``key[base:]``, or the free slot where it belongs."""
    mixed = np.uint64(0)
    for i in range(words):
        mixed = (mixed ^ key[base + i]) * MIX_1
        mixed = (mixed ^ (mixed >> SHIFT_32)) * MIX_2
    mixed ^= mixed >> SHIFT_32
    mask = slots.size - 1
    slot = np.int64(mixed & np.uint64(mask))
    while True:
        row = slots[slot]
        if row < 0:
            return slot
        same = True
        for i in range(words):
            if boxes[row * words + i] != key[base + i]:
                same = False
                break
        if same:
            return slot
        slot = (slot + 1) & mask


@njit(cache=True)
def longer(array: Any, size: int) -> Any:
    """Return a copy of ``array`` with ``size`` places."""
    other = np.empty(size, array.dtype)
    other[: array.size] = array
    return other


@njit(cache=True)
def with_room(space, words, rows, entries):
    """Return ``space`` with place for so many more rows and entries."""
    boxes, seen, last, slots, bits, row, previous, starts, count = space
    if count[0] + rows > last.size:
        size = max(count[0] + rows, last.size + (last.size >> 1))
        boxes = longer(boxes, size * words)
        seen = longer(seen, size * words)
        last = longer(last, size)
    if 2 * (count[0] + rows) > slots.size:
        slots = np.full(slots.size * 4, -1, np.int32)
        for known in range(count[0]):
            slots[slot_of(boxes, slots, boxes, known * words, words)] = known
    if count[1] + entries > row.size:
        size = max(count[1] + entries, row.size + (row.size >> 1))
        bits = longer(bits, size * words)
        row = longer(row, size)
        previous = longer(previous, size)
    if count[2] + 2 > starts.size:
        starts = longer(starts, starts.size * 2)
    return Space(boxes, seen, last, slots, bits, row, previous, starts, count)


@njit(cache=True)
def row_for(space, words, key):
    """Return the row of the box bitboard ``key``, made when new. There must be room."""
    slot = slot_of(space.boxes, space.slots, key, 0, words)
    row = space.slots[slot]
    if row < 0:
        row = space.count[0]
        space.count[0] += 1
        space.slots[slot] = row
        space.last[row] = -1
        for i in range(words):
            space.boxes[row * words + i] = key[i]
            space.seen[row * words + i] = np.uint64(0)
    return np.int64(row)


@njit(cache=True)
def entry_for(space, words, row):
    """Return the entry of ``row`` in the level being filled, made empty when new. There must be room."""
    entry = space.last[row]
    if entry < space.starts[space.count[2]]:
        space.previous[space.count[1]] = entry
        entry = space.count[1]
        space.count[1] += 1
        space.last[row] = entry
        space.row[entry] = row
        for i in range(words):
            space.bits[entry * words + i] = np.uint64(0)
    return np.int64(entry)


@njit(cache=True)
def add_player(space, words, row, cell):
    """Put one player cell of ``row`` into the level being filled unless it was seen. There must be room."""
    if not has(space.seen, row * words, cell):
        flip(space.seen, row * words, cell)
        flip(space.bits, entry_for(space, words, row) * words, cell)
        space.count[3] += 1


@njit(cache=True)
def seed_solved(space, board, max_states):
    """Fill level 0 with every solved state: each choice of targets for the boxes, the player on any free cell."""
    words, boxes = board.shape[WORDS], board.shape[BOXES]
    spots = np.empty(64 * words, np.int64)
    size = 0
    for cell in range(64 * words):
        if has(board.targets, 0, cell):
            spots[size] = cell
            size += 1
    chosen = np.arange(boxes)
    key = np.zeros(words, np.uint64)
    while True:
        key[:] = 0
        for i in range(boxes):
            flip(key, 0, spots[chosen[i]])
        space = with_room(space, words, 1, 1)
        row = row_for(space, words, key)
        entry = entry_for(space, words, row)
        for i in range(words):
            free = board.area[i] & ~key[i]
            space.seen[row * words + i] = free
            space.bits[entry * words + i] = free
            space.count[3] += bit_count(free)
        i = boxes - 1
        while i >= 0 and chosen[i] == size - boxes + i:
            i -= 1
        if i < 0 or space.count[3] > max_states:
            break
        chosen[i] += 1
        for j in range(i + 1, boxes):
            chosen[j] = chosen[j - 1] + 1
    return close_level(space, words)


@njit(cache=True)
def close_level(space, words):
    """Finish the level being filled: the next one starts behind it."""
    space = with_room(space, words, 0, 0)
    space.count[2] += 1
    space.starts[space.count[2]] = space.count[1]
    return space


@njit(cache=True)
def advance(space, board, forward, max_states):
    """Fill and close the next level from the last one, by moves (``forward``) or by moves undone.

    The level stays incomplete when the number of states passes ``max_states``; the caller must check the count.
    """
    stride, words, boxes_count = board.shape[STRIDE], board.shape[WORDS], board.shape[BOXES]
    free = np.empty(words, np.uint64)
    movable = np.empty(words, np.uint64)
    key = np.empty(words, np.uint64)
    level = space.count[2]
    for entry in range(space.starts[level - 1], space.starts[level]):
        if space.count[3] > max_states:
            break
        space = with_room(space, words, 4 * boxes_count, 1 + 4 * boxes_count)
        row = np.int64(space.row[entry])
        at, here = entry * words, row * words
        for i in range(words):
            free[i] = board.cells[i] & ~space.boxes[here + i]
        for i in range(words):
            fresh = shifted(space.bits, at, words, i, 1) & board.inner_left[i]
            fresh |= shifted(space.bits, at, words, i, -1) & board.inner_right[i]
            fresh |= shifted(space.bits, at, words, i, stride) | shifted(space.bits, at, words, i, -stride)
            fresh &= free[i] & ~space.seen[here + i]
            if fresh != np.uint64(0):
                space.seen[here + i] |= fresh
                space.bits[entry_for(space, words, row) * words + i] |= fresh
                space.count[3] += bit_count(fresh)
        for direction in range(4):
            step = step_of(direction, stride)
            for i in range(words):
                # Boxes that can be pushed this way, or could have been pushed here this way.
                if forward:
                    movable[i] = shifted(free, 0, words, i, -step) & space.boxes[here + i]
                else:
                    movable[i] = space.boxes[here + i]
                if forward and direction == 2:
                    movable[i] &= board.inner_left[i]
                elif forward and direction == 3:
                    movable[i] &= board.inner_right[i]
            for i in range(words):
                players = space.bits[at + i] & shifted(movable, 0, words, i, -step)
                if direction == 2:
                    players &= board.inner_left[i]
                elif direction == 3:
                    players &= board.inner_right[i]
                if not forward:
                    players &= shifted(free, 0, words, i, step)
                    if direction == 2:
                        players &= board.inner_right[i]
                    elif direction == 3:
                        players &= board.inner_left[i]
                while players != np.uint64(0):
                    cell = 64 * i + lowest_bit(players)
                    players &= players - ONE
                    old = cell + step
                    new = old + step if forward else cell
                    if forward and not has(board.live, 0, new):
                        continue
                    for j in range(words):
                        key[j] = space.boxes[here + j]
                    flip(key, 0, old)
                    flip(key, 0, new)
                    add_player(space, words, row_for(space, words, key), old if forward else cell - step)
    return close_level(space, words)


@njit(cache=True)
def depth_of(space, words, key, base, player):
    """Return the depth of a state, or -1 when the search has not met it."""
    row = space.slots[slot_of(space.boxes, space.slots, key, base, words)]
    if row < 0 or not has(space.seen, np.int64(row) * words, player):
        return -1
    entry = np.int64(space.last[row])
    while not has(space.bits, entry * words, player):
        entry = np.int64(space.previous[entry])
    return np.searchsorted(space.starts[: space.count[2] + 1], entry, side="right") - 1


@njit(cache=True)
def board_at(boards, index):
    """Return one level of a batch."""
    shape = boards.shape[index]
    words = shape[WORDS]
    at = shape[MASK_AT]
    masks = boards.masks[at : at + 7 * words]
    return Board(
        shape,
        masks[:words],
        masks[words : 2 * words],
        masks[2 * words : 3 * words],
        masks[3 * words : 4 * words],
        masks[4 * words : 5 * words],
        masks[5 * words : 6 * words],
        masks[6 * words :],
        boards.near[shape[NEAR_AT] :],
    )


@njit(cache=True)
def move(board, key, base, player, direction):
    """Make one move on the box bitboard at ``base`` in place; return the player's new cell."""
    ahead = np.int64(board.near[4 * player + direction])
    if ahead < 0:
        return player
    if has(key, base, ahead):
        behind = np.int64(board.near[4 * ahead + direction])
        if behind < 0 or has(key, base, behind):
            return player
        flip(key, base, ahead)
        flip(key, base, behind)
    return ahead


@njit(cache=True)
def explore(boards, depth_limit, max_states):
    """Search the one level of ``boards`` backward from its solved states.

    The search ends at ``depth_limit`` moves or, if that is negative, when every solvable state was met. The count of states is above ``max_states`` when the search gave up.
    """
    board = board_at(boards, 0)
    space = seed_solved(new_space(board.shape[WORDS]), board, max_states)
    while space.count[3] <= max_states and (depth_limit < 0 or space.count[2] <= depth_limit):
        space = advance(space, board, False, max_states)
        if space.starts[space.count[2]] == space.starts[space.count[2] - 1]:
            break
    return space


@njit(cache=True)
def same_room(boards, others):
    """Tell whether two one-level batches have the same walls, targets and number of boxes in the same places."""
    one, two = boards.shape[0], others.shape[0]
    for column in (TOP, LEFT, HEIGHT, STRIDE, BOXES):
        if one[column] != two[column]:
            return False
    words = 2 * one[WORDS]  # the bitboards of the floor and of the targets
    at, other = one[MASK_AT], two[MASK_AT]
    return bool(np.all(boards.masks[at : at + words] == others.masks[other : other + words]))


@njit(cache=True)
def depths_after(boards, space, deltas):
    """Return the depth of the state of ``boards`` and of the four states after up, down, left and right."""
    board = board_at(boards, 0)
    words = board.shape[WORDS]
    found = np.empty(5, np.int64)
    found[0] = depth_of(space, words, board.boxes, 0, board.shape[PLAYER])
    for direction in range(4 if deltas else 0):
        key = board.boxes.copy()
        player = move(board, key, 0, board.shape[PLAYER], direction)
        found[1 + direction] = depth_of(space, words, key, 0, player)
    return found


@njit(cache=True)
def nth_state(space, words, depth, number):
    """Return (box bitboard, player's cell) of the ``number``-th state at ``depth``, in the order of the search."""
    for entry in range(space.starts[depth], space.starts[depth + 1]):
        row = np.int64(space.row[entry])
        for i in range(words):
            bits = space.bits[entry * words + i]
            size = bit_count(bits)
            if number < size:
                for _ in range(number):
                    bits &= bits - ONE
                return space.boxes[row * words : (row + 1) * words].copy(), 64 * i + lowest_bit(bits)
            number -= size
    raise IndexError("no state of that number at this depth")


@njit(cache=True)
def level_sizes(space, words):
    """Return the number of states at each depth."""
    sizes = np.zeros(space.count[2], np.int64)
    for depth in range(sizes.size):
        for i in range(space.starts[depth] * words, space.starts[depth + 1] * words):
            sizes[depth] += bit_count(space.bits[i])
    return sizes
