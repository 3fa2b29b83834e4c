"""Compiled parser of Sokoban levels, from XSB texts to bitboards, a batch in one call.

A set of cells is a *bitboard*: ``W`` words of 64 bits over the bounding box of the level's cells, cell (r, c) at bit
``r * stride + c``.
"""

# Splitting these functions would cost compile time and calls.
# ruff: noqa: PLR0912, PLR0915

import numpy as np

from ...compiled import compiled, forget_stale
from . import bits, layout
from .bits import inner
from .layout import (
    AREA,
    ARRIVE,
    BAD_CHAR,
    BOXES,
    CELLS,
    CODE,
    FEW_TARGETS,
    HEIGHT,
    LEFT,
    LIVE,
    MASK_AT,
    MASKS,
    MAX_CELLS,
    NEAR_AT,
    NO_BOX,
    NO_PLAYER,
    OK,
    OPEN,
    PLAYER,
    START,
    STRIDE,
    TARGETS,
    TOO_LARGE,
    TOP,
    TWO_PLAYERS,
    WORDS,
    Boards,
)

forget_stale(__file__, bits, layout)


@inner
def _classify(text, grid, width):
    """Write the content of each cell (1 wall, 2 target, 4 box, 8 player); return (code, player, boxes, targets)."""
    line = column = players = boxes = targets = 0
    player = -1
    for char in text:
        if char == 10:
            line += 1
            column = 0
            continue
        cell = line * width + column
        column += 1
        if char == 35:  # '#'
            grid[cell] = 1
        elif char == 46:  # '.'
            grid[cell] = 2
        elif char == 36:  # '$'
            grid[cell] = 4
        elif char == 42:  # '*'
            grid[cell] = 6
        elif char == 64:  # '@'
            grid[cell] = 8
        elif char == 43:  # '+'
            grid[cell] = 10
        elif char not in (32, 45, 95):  # ' ', '-', '_'
            return BAD_CHAR, player, boxes, targets
        targets += (grid[cell] >> 1) & 1
        boxes += (grid[cell] >> 2) & 1
        if grid[cell] & 8:
            player = cell
            players += 1
    if players > 1:
        return TWO_PLAYERS, player, boxes, targets
    return OK, player, boxes, targets


@inner
def _flood(grid, lines, width, start, mark, stack):
    """Mark the cells connected to ``start`` that are not walls; return whether they touch the edge of the text."""
    grid[start] |= mark
    stack[0] = start
    size = 1
    leak = False
    while size > 0:
        size -= 1
        cell = stack[size]
        y, x = cell // width, cell % width
        if y == 0 or x == 0 or y == lines - 1 or x == width - 1:
            leak = True
        for direction in range(4):
            if direction == 0:
                other = cell - width if y > 0 else -1
            elif direction == 1:
                other = cell + width if y < lines - 1 else -1
            elif direction == 2:
                other = cell - 1 if x > 0 else -1
            else:
                other = cell + 1 if x < width - 1 else -1
            if other >= 0 and grid[other] & (1 | mark) == 0:
                grid[other] |= mark
                stack[size] = other
                size += 1
    return leak


# Marks of the flood fill: part of the level, reachable for the player, outside.
# They are typed, because numba would compile the flood fill once per plain constant.
_INSIDE, _PLAYERS, _OUTSIDE = np.uint8(16), np.uint8(32), np.uint8(64)


@inner
def _areas(grid, lines, width, player, stack):
    """Mark the areas of the level; return OK, or OPEN if the walls of an area with an object have a gap."""
    if player >= 0:
        if _flood(grid, lines, width, player, _INSIDE | _PLAYERS, stack):
            return OPEN
        for cell in range(lines * width):
            if grid[cell] & 6 and grid[cell] & _INSIDE == 0 and _flood(grid, lines, width, cell, _INSIDE, stack):
                return OPEN
        return OK
    has_area = False
    for cell in range(lines * width):
        y, x = cell // width, cell % width
        edge = y == 0 or x == 0 or y == lines - 1 or x == width - 1
        if edge and grid[cell] & (1 | _OUTSIDE) == 0:
            _flood(grid, lines, width, cell, _OUTSIDE, stack)
    for cell in range(lines * width):
        if grid[cell] & _OUTSIDE and grid[cell] & 6:
            return OPEN
        if grid[cell] & (1 | _OUTSIDE) == 0:
            grid[cell] |= _INSIDE | _PLAYERS
            has_area = True
    return OK if has_area else OPEN


@inner
def _build(grid, lines, width, player, shape, masks, near, stack):
    """Fill the row ``shape`` and the bitboards of a level whose areas are marked."""
    top, bottom, left, right = lines, -1, width, -1
    for cell in range(lines * width):
        if grid[cell] & _INSIDE:
            y, x = cell // width, cell % width
            top, bottom, left, right = min(top, y), max(bottom, y), min(left, x), max(right, x)
    height, stride = bottom - top + 1, right - left + 1
    words = (height * stride + 63) >> 6
    shape[TOP], shape[LEFT], shape[HEIGHT], shape[STRIDE], shape[WORDS] = top, left, height, stride, words
    shape[PLAYER] = -1 if player < 0 else (player // width - top) * stride + player % width - left
    masks[: MASKS * words] = 0
    live = np.zeros(height * stride, np.bool_)
    size = 0
    for y in range(height):
        for x in range(stride):
            cell = y * stride + x
            kind = grid[(top + y) * width + left + x]
            bit = np.uint64(1) << np.uint64(cell & 63)
            at = cell >> 6
            masks[ARRIVE * words + at] |= bit
            masks[(ARRIVE + 1) * words + at] |= bit
            if x < stride - 1:
                masks[(ARRIVE + 2) * words + at] |= bit
            if x > 0:
                masks[(ARRIVE + 3) * words + at] |= bit
            if kind & _INSIDE == 0:
                near[4 * cell : 4 * cell + 4] = -1
                continue
            masks[CELLS * words + at] |= bit
            if kind & _PLAYERS:
                masks[AREA * words + at] |= bit
            if kind & 4:
                masks[START * words + at] |= bit
            if kind & 2:
                masks[TARGETS * words + at] |= bit
                live[cell] = True
                stack[size] = cell
                size += 1
            # Floor is never at the edge of the text, so all four neighbours exist.
            here = (top + y) * width + left + x
            near[4 * cell] = cell - stride if grid[here - width] & _INSIDE else -1
            near[4 * cell + 1] = cell + stride if grid[here + width] & _INSIDE else -1
            near[4 * cell + 2] = cell - 1 if grid[here - 1] & _INSIDE else -1
            near[4 * cell + 3] = cell + 1 if grid[here + 1] & _INSIDE else -1
    # Pulling a box from `cell` to `other` is the reverse of a push from `other`; the player ends one cell beyond it.
    while size > 0:
        size -= 1
        cell = stack[size]
        for direction in range(4):
            other = near[4 * cell + direction]
            if other >= 0 and not live[other] and near[4 * other + direction] >= 0:
                live[other] = True
                stack[size] = other
                size += 1
    for cell in range(height * stride):
        if live[cell]:
            masks[LIVE * words + (cell >> 6)] |= np.uint64(1) << np.uint64(cell & 63)


@compiled
def parse_levels(text, ends, room_boxes):
    """Parse the XSB texts that end at ``ends`` in ``text`` (ASCII codes) into :class:`Boards`.

    ``room_boxes`` is 0 for complete levels; otherwise the texts are rooms without player, for that number of boxes.
    """
    count = ends.size
    shape = np.zeros((count, 10), np.int64)
    sizes = np.zeros((count, 2), np.int64)
    mask_total = near_total = largest = 1
    begin = 0
    for index in range(count):
        lines, width, column = 1, 0, 0
        for char in text[begin : ends[index]]:
            if char == 10:
                lines += 1
                column = 0
            else:
                column += 1
                width = max(width, column)
        begin = ends[index]
        if lines * width > MAX_CELLS:
            shape[index, CODE] = TOO_LARGE
            continue
        sizes[index, 0], sizes[index, 1] = lines, width
        shape[index, MASK_AT], shape[index, NEAR_AT] = mask_total, near_total
        mask_total += MASKS * ((lines * width + 63) >> 6)
        near_total += 4 * lines * width
        largest = max(largest, lines * width)
    masks = np.empty(mask_total, np.uint64)
    near = np.empty(near_total, np.int32)
    scratch = np.empty(largest, np.uint8)
    stack = np.empty(largest, np.int64)
    begin = 0
    for index in range(count):
        chars = text[begin : ends[index]]
        begin = ends[index]
        if shape[index, CODE] != OK:
            continue
        lines, width = sizes[index, 0], sizes[index, 1]
        grid = scratch[: lines * width]
        grid[:] = 0
        code, player, boxes, targets = _classify(chars, grid, width)
        if code == OK and room_boxes == 0:
            if player < 0:
                code = NO_PLAYER
            elif boxes == 0:
                code = NO_BOX
        elif code == OK:
            boxes = room_boxes
        if code == OK and targets < boxes:
            code = FEW_TARGETS
        if code == OK:
            code = _areas(grid, lines, width, player, stack)
        shape[index, CODE] = code
        shape[index, BOXES] = boxes
        if code == OK:
            at, neighbours = shape[index, MASK_AT], shape[index, NEAR_AT]
            _build(grid, lines, width, player, shape[index], masks[at:], near[neighbours:], stack)
    return Boards(shape, masks, near)
