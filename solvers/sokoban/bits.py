"""Compiled bitboard operations: words, bits, and moving a set of cells by one step."""

from functools import partial
from typing import Any

import numpy as np

from ...compiled import compiled, forget_stale
from . import layout
from .layout import ARRIVE, STRIDE, WORDS

ZERO, ONE = np.uint64(0), np.uint64(1)
ALL = ~ZERO
LOW6 = 63
LOW_32 = np.uint64(0xFFFFFFFF)
SHIFT_32 = np.uint64(32)
MIX_1 = np.uint64(0x9E3779B97F4A7C15)
MIX_2 = np.uint64(0xD6E8FEB86659FD93)

# Trailing zeros of a word by de Bruijn multiplication: TRAILING[(lowest bit * DE_BRUIJN) >> 58].
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
SHIFT_58 = np.uint64(58)
TRAILING = np.zeros(64, np.int64)
for _i in range(64):
    TRAILING[((1 << _i) * 0x03F79D71B4CB0A89 % (1 << 64)) >> 58] = _i


forget_stale(__file__, layout)

# Only functions that Python calls get a Python wrapper, which saves compile time.
inner = partial(compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@inner
def lowest_bit(word):
    """Return the index of the lowest set bit of a non-zero word."""
    return TRAILING[((word & (~word + ONE)) * DE_BRUIJN) >> SHIFT_58]


@inner
def bit_count(word):
    """Return the number of set bits."""
    total = 0
    while word != ZERO:
        word &= word - ONE
        total += 1
    return total


@inner
def has(board, base, cell):
    """Return whether ``cell`` is in the bitboard that starts at ``base``."""
    return (board[base + (cell >> 6)] >> np.uint64(cell & LOW6)) & ONE != ZERO


@inner
def flip(board, base, cell):
    """Toggle ``cell``."""
    board[base + (cell >> 6)] ^= ONE << np.uint64(cell & LOW6)


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
def copy_words(target, source, words):
    """Copy ``words`` words; the equivalent slice assignment would take two seconds to compile."""
    for i in range(words):
        target[i] = source[i]


@inner
def longer(array: Any, size: int) -> Any:
    """Return a copy of ``array`` with length ``size``."""
    other = np.empty(size, array.dtype)
    copy_words(other, array, array.size)
    return other
