"""The fewest turns that any play could need on the tabletop, from what the observation text says: a sound lower bound.

The planner knows nothing of hands and physics beyond what it assumes here, and it errs on the generous side, so that no
play is ever faster than it says (a turn has up to two primitives):

- A thing rises only in the hand or on a thing in the hand; whatever is moved otherwise ends no higher than it was. One
  primitive may move any number of things sideways, on the table or from one support to another, right to where they
  belong: ``pick`` no further than :data:`NEAR`, ``place`` and ``push`` over any distance.
- ``pick`` takes up one thing, with whatever stands on it; what was held before is let go there, within :data:`NEAR` of
  what is taken up. ``place`` and ``push`` may let go of what is held, anywhere. A thing let go may land on anything but
  what it carries.
- Only a push moves the drawer far; it may close it, and move the apple into the tray or with it, at once. Fingers that
  open or close may shift it by :data:`FINGER_ROOM`.

Where things are is known at the first primitive only: from the second on, nothing is too far. Positions are rounded to
whole millimetres, and a thing lies on another when it is as high as two cubes allow, so tests are relaxed by that.
"""

import re
from collections import deque
from functools import lru_cache
from itertools import product

from ...errors import LevelError

THINGS = {
    "align": ("red cube", "green cube"),
    "place": ("red cube", "green cube"),
    "stack": ("red cube", "green cube", "purple cube"),
    "drawer": ("apple",),
}
"""The movable things of each task, in the order of the observation text."""
FIXED = {"align": 0, "place": 2, "stack": 0, "drawer": 1}
"""How many places follow them there: two targets, or the tray."""
TURN = 2
"""Primitives that fit in a turn."""
HELD_ABOVE = {"align": 250, "place": 250, "stack": 250, "drawer": 400}
"""What is higher than this hangs in the hand, or lies on what does, millimetres."""
ONE_UP, TWO_UP = 52, 86
"""Centres of two cubes are at least 40 mm apart; less than 20 mm aside, that leaves 34.6 mm in height. So the second
cube of a tower is higher than 20 + 34, the third higher than 20 + 69 mm, here with some room for simulators."""
BESIDE = 60
"""A cube that lies on another is less than this aside, in x and in y, millimetres: further they do not touch."""
NEAR = 150
"""How far from its place a pick may move or leave a thing, millimetres: a thing may be
off the hand by a finger's width, and so may what the hand closes on."""
FINGER_ROOM = 40
CLOSED = 100 + 1 + FINGER_ROOM
"""An opening shown above this takes a push to become that of a closed drawer, 100 mm, whatever was rounded."""
IN_TRAY = 98
"""A thing shown below this is lower than the 100 mm of a thing in the tray."""

Position = tuple[int, int, int]
Supports = tuple[int, int, int]
"""What each cube of the tower task stands on: an index into its things, :data:`TABLE` or :data:`HAND`."""
TABLE, HAND = -1, -2
RED, GREEN, PURPLE = 0, 1, 2
TOWER: Supports = (GREEN, TABLE, RED)

_INTEGER = r"-?(?:0|[1-9][0-9]{0,5})"
_POINT = re.compile(rf"\(({_INTEGER}),({_INTEGER}),({_INTEGER})\)")
_TEXT = re.compile(
    r"Workspace limits in mm: [^\n]*\n"
    rf"Object positions in mm: \[({_POINT.pattern}(?:,{_POINT.pattern}){{0,9}})\]\n"
    r"Other information: ([^\n]*)"
)
_OPENING = re.compile(rf"the drawer is open by ({_INTEGER}) of {_INTEGER} mm")


@lru_cache(maxsize=1 << 14)
def fewest_turns(task: str, observation: str) -> int:
    """Return a number of turns that no play from the observed state can undercut: 1 or 2.

    The state is one in which an episode went on, so at least one turn is needed.

    Args:
        task: a key of :data:`THINGS`.
        observation: the text of spec section 4: workspace, positions, other information.

    Raises:
        LevelError: the text does not say where the things are.
    """
    at, opening = read_observation(task, observation)
    if task == "drawer":
        primitives = _drawer(at[0][2], opening)
    elif task == "stack":
        primitives = _stack(at)
    else:
        # One primitive lets go of what is held, where it belongs; one push moves everything else there.
        primitives = TURN
    return max(1, -(-primitives // TURN))


def read_observation(task: str, observation: str) -> tuple[tuple[Position, ...], int]:
    """Return the positions of the movable things, and the drawer's opening (0 where there is none), millimetres.

    Raises:
        LevelError: the text does not say where the things are.
    """
    found = _TEXT.fullmatch(observation)
    points = [] if found is None else [tuple(map(int, point)) for point in _POINT.findall(found[1])]
    opening = None if found is None else _OPENING.fullmatch(found.groups()[-1])
    count = len(THINGS[task])
    if len(points) != count + FIXED[task] or (task == "drawer") != (opening is not None):
        raise LevelError(
            f"the observation of a {task} episode names {len(points)} positions, expected {count + FIXED[task]}"
            + (" and the drawer's opening" if task == "drawer" else "")
        )
    at = tuple((x, y, z) for x, y, z in points[:count])
    return at, 0 if opening is None else int(opening[1])


def _drawer(height: int, opening: int) -> int:
    """Return the fewest primitives: closing takes a push, lifting the apple into the tray a pick and a release."""
    pushes = 1 if opening > CLOSED else 0
    if height > HELD_ABOVE["drawer"]:
        return 1 + pushes
    return 2 + pushes if height < IN_TRAY else 1


def _stack(at: tuple[Position, ...]) -> int:
    """Return the fewest primitives to the tower, over everything that the positions may mean."""
    states = _readings(at)
    if not states:
        return 1  # heights that fit no pile: nothing can be said
    near = tuple(tuple(_apart(one, other) <= NEAR for other in at) for one in at)
    return min(0 if state == TOWER else 1 + _after_one(state, near) for state in states)


def _readings(at: tuple[Position, ...]) -> list[Supports]:
    """Return every way in which the cubes can stand on each other."""
    heights = [z for _, _, z in at]
    up = [z > HELD_ABOVE["stack"] for z in heights]
    lowest_up = min((z for z, high in zip(heights, up, strict=True) if high), default=0)
    choices: list[list[int]] = []
    for index, height in enumerate(heights):
        others = [other for other in range(3) if other != index and up[other] == up[index]]
        if up[index] and height == lowest_up:
            choices.append([HAND])
        elif up[index]:
            choices.append([other for other in others if heights[other] < height])
        elif (level := _level(height)) == 0:
            choices.append([TABLE])
        else:
            choices.append(
                [o for o in others if _level(heights[o]) == level - 1 and _apart(at[o], at[index]) <= BESIDE]
            )
    return [state for state in _ALL if all(base in found for base, found in zip(state, choices, strict=True))]


def _level(height: int) -> int:
    return 0 if height < ONE_UP else 1 if height < TWO_UP else 2


def _apart(one: Position, other: Position) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))


def _chain(state: Supports, index: int) -> list[int]:
    """Return what a cube stands on, from its own support down; the last is ``TABLE`` or ``HAND``."""
    chain = [state[index]]
    while chain[-1] >= 0:
        chain.append(state[chain[-1]])
    return chain


def _is_possible(state: tuple[int, ...]) -> bool:
    for index in range(3):
        below, steps = state[index], 0
        while below >= 0 and steps < 3:
            below, steps = state[below], steps + 1
        if below >= 0:
            return False  # a circle
    return list(state).count(HAND) <= 1


_BASES = (HAND, TABLE, RED, GREEN, PURPLE)
_ALL: list[Supports] = [state for state in product(_BASES, _BASES, _BASES) if _is_possible(state)]
_CHAINS = {state: [_chain(state, index) for index in range(3)] for state in _ALL}
_EVERYTHING_NEAR = ((True,) * 3,) * 3


def _hand_of(state: Supports) -> int | None:
    return state.index(HAND) if HAND in state else None


def _one_primitive(before: Supports, after: Supports, near: tuple[tuple[bool, ...], ...]) -> bool:
    """Whether some primitive may turn one state into the other."""
    return any(
        all(_may_go(before, after, index, place, near) for index in range(3))
        for place in _places(_hand_of(before), _hand_of(after))
    )


def _places(held: int | None, taken: int | None) -> tuple[int | None, ...]:
    """Return where the hand may act: at the cube of that index (a pick), or anywhere (None: a place or a push)."""
    return (None, taken) if held == taken and taken is not None else (taken,)


def _may_go(
    before: Supports, after: Supports, index: int, place: int | None, near: tuple[tuple[bool, ...], ...]
) -> bool:
    """Whether cube ``index`` may get from its support before the primitive to that after it."""
    was, now = _CHAINS[before][index], _CHAINS[after][index]
    carried, carries_now = was[-1] == HAND, now[-1] == HAND
    moved = was[0] != now[0]
    reachable = not moved or now[0] < 0 or place is None or near[place][now[0]] or (not carried and near[index][now[0]])
    if carried and carries_now:
        return reachable
    if carried:
        # Let go: it may land on anything but what it carried.
        return reachable and not any(base >= 0 and index in _CHAINS[before][base] for base in now)
    if carries_now:
        # Taken up, or standing on what is; the latter may have come from no lower than it stands on now.
        return index == place or (place is not None and len(was) > len(_CHAINS[before][place]) and reachable)
    return len(now) <= len(was) and reachable


@lru_cache(maxsize=1 << 12)
def _after_one(before: Supports, near: tuple[tuple[bool, ...], ...]) -> int:
    """Return the fewest primitives to the tower after a first one, made where ``near`` holds."""
    left = _primitives_left()
    return min(left[after] for after in _ALL if _one_primitive(before, after, near))


@lru_cache(maxsize=1)
def _primitives_left() -> dict[Supports, int]:
    """Return the fewest primitives to the tower from every state, where nothing is too far."""
    found, queue = {TOWER: 0}, deque([TOWER])
    while queue:
        state = queue.popleft()
        for before in _ALL:
            if before not in found and _one_primitive(before, state, _EVERYTHING_NEAR):
                found[before] = found[state] + 1
                queue.append(before)
    return found


__all__ = ["FIXED", "THINGS", "fewest_turns", "read_observation"]
