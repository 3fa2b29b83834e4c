"""Provable lower bound on the turns to success on the tabletop, computed from the observation text.

The planner makes only the following assumptions about hand and physics. They are generous, so that no episode can be
faster than the bound (a turn has up to two primitives):

- An object rises only in the hand or on an object in the hand; any other movement ends no higher than it started. One
  primitive may move any number of objects sideways, on the table or from one support to another, to their goals:
  ``pick`` by at most :data:`NEAR`, ``place`` and ``push`` by any distance.
- ``pick`` lifts one object with everything on it; an object that was in the hand before is released within :data:`NEAR`
  of it. ``place`` and ``push`` may release the object in the hand anywhere. A released object may land on anything
  except what it carries.
- Only a push moves the drawer far; a push may close it, and at once move the apple into the tray or with the tray.
  Fingers that open or close may shift the drawer by :data:`FINGER_ROOM`.

Positions are known only for the first primitive; from the second on, every distance is possible. Positions are rounded
to whole millimetres, and support is inferred from heights, so all tests have the corresponding tolerance.
"""

import re
from collections import deque
from functools import lru_cache
from itertools import product

from ...core.errors import LevelError

THINGS = {
    "align": ("red cube", "green cube"),
    "place": ("red cube", "green cube"),
    "stack": ("red cube", "green cube", "purple cube"),
    "drawer": ("apple",),
}
"""Movable objects of each task, in the order of the observation text."""
FIXED = {"align": 0, "place": 2, "stack": 0, "drawer": 1}
"""Number of fixed positions that follow them in the text: two targets, or the tray."""
TURN = 2
"""Maximum number of primitives per turn."""
HELD_ABOVE = {"align": 250, "place": 250, "stack": 250, "drawer": 400}
"""Height above which an object is in the hand or on an object in the hand, millimetres."""
ONE_UP, TWO_UP = 52, 86
"""Lowest heights of the second and third cube of a tower. Centres of two cubes are at least 40 mm apart; with less than
20 mm sideways, 34.6 mm of height remain. The second cube is therefore above 20 + 34 mm, the third above 20 + 69 mm,
less a tolerance for simulators."""
BESIDE = 60
"""Largest sideways distance of a cube that lies on another, in x and in y, millimetres."""
NEAR = 150
"""Largest distance by which a pick moves or displaces an object, millimetres: both the object and the one that the hand
closes on may be off the hand's centre by a finger's width."""
FINGER_ROOM = 40
CLOSED = 100 + 1 + FINGER_ROOM
"""Displayed opening above which the drawer is not closed (100 mm, plus rounding) and needs a push."""
IN_TRAY = 98
"""Displayed height below which an object is not in the tray (100 mm, minus rounding)."""

Position = tuple[int, int, int]
Supports = tuple[int, int, int]
"""Support of each cube of the tower task: index of a cube, :data:`TABLE` or :data:`HAND`."""
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
    """Return a lower bound on the turns to success from the observed state: 1 or 2.

    The episode continued after this state, so at least one turn is needed.

    Args:
        task: a key of :data:`THINGS`.
        observation: the observation text: workspace, positions, other information.

    Raises:
        LevelError: the text does not contain the positions.
    """
    at, opening = read_observation(task, observation)
    if task == "drawer":
        primitives = _drawer(at[0][2], opening)
    elif task == "stack":
        primitives = _stack(at)
    else:
        # One primitive releases the object in the hand at its goal; one push moves all others to theirs.
        primitives = TURN
    return max(1, -(-primitives // TURN))


def read_observation(task: str, observation: str) -> tuple[tuple[Position, ...], int]:
    """Return the positions of the movable objects and the drawer's opening (0 without a drawer), millimetres.

    Raises:
        LevelError: the text does not contain the positions.
    """
    match = _TEXT.fullmatch(observation)
    points = [] if match is None else [tuple(map(int, point)) for point in _POINT.findall(match[1])]
    opening = None if match is None else _OPENING.fullmatch(match.groups()[-1])
    count = len(THINGS[task])
    if len(points) != count + FIXED[task] or (task == "drawer") != (opening is not None):
        raise LevelError(
            f"the observation of a {task} episode names {len(points)} positions, expected {count + FIXED[task]}"
            + (" and the drawer's opening" if task == "drawer" else "")
        )
    at = tuple((x, y, z) for x, y, z in points[:count])
    return at, 0 if opening is None else int(opening[1])


def _drawer(height: int, opening: int) -> int:
    """Return the fewest primitives: closing needs a push; lifting the apple into the tray, a pick and a release."""
    pushes = 1 if opening > CLOSED else 0
    if height > HELD_ABOVE["drawer"]:
        return 1 + pushes
    return 2 + pushes if height < IN_TRAY else 1


def _stack(at: tuple[Position, ...]) -> int:
    """Return the fewest primitives to the tower, minimised over all arrangements that fit the positions."""
    states = _readings(at)
    if not states:
        return 1  # the heights fit no arrangement, so nothing is known
    near = tuple(tuple(_apart(one, other) <= NEAR for other in at) for one in at)
    return min(0 if state == TOWER else 1 + _after_one(state, near) for state in states)


def _readings(at: tuple[Position, ...]) -> list[Supports]:
    """Return all arrangements of the cubes."""
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
    return [state for state in _ALL if all(base in options for base, options in zip(state, choices, strict=True))]


def _level(height: int) -> int:
    return 0 if height < ONE_UP else 1 if height < TWO_UP else 2


def _apart(one: Position, other: Position) -> int:
    return max(abs(one[0] - other[0]), abs(one[1] - other[1]))


def _chain(state: Supports, index: int) -> list[int]:
    """Return the supports below a cube, from its own downwards; the last is ``TABLE`` or ``HAND``."""
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
            return False  # circular
    return list(state).count(HAND) <= 1


_BASES = (HAND, TABLE, RED, GREEN, PURPLE)
_ALL: list[Supports] = [state for state in product(_BASES, _BASES, _BASES) if _is_possible(state)]
_CHAINS = {state: [_chain(state, index) for index in range(3)] for state in _ALL}
_EVERYTHING_NEAR = ((True,) * 3,) * 3


def _hand_of(state: Supports) -> int | None:
    return state.index(HAND) if HAND in state else None


def _one_primitive(before: Supports, after: Supports, near: tuple[tuple[bool, ...], ...]) -> bool:
    """Return whether a primitive can change one arrangement into the other."""
    return any(
        all(_may_go(before, after, index, place, near) for index in range(3))
        for place in _places(_hand_of(before), _hand_of(after))
    )


def _places(in_hand: int | None, taken: int | None) -> tuple[int | None, ...]:
    """Return where the hand can act: at the cube of that index (a pick), or anywhere (None: a place or a push)."""
    return (None, taken) if in_hand == taken and taken is not None else (taken,)


def _may_go(
    before: Supports, after: Supports, index: int, place: int | None, near: tuple[tuple[bool, ...], ...]
) -> bool:
    """Return whether a primitive can move cube ``index`` from its old support to its new one."""
    was, now = _CHAINS[before][index], _CHAINS[after][index]
    carried, carries_now = was[-1] == HAND, now[-1] == HAND
    moved = was[0] != now[0]
    reachable = not moved or now[0] < 0 or place is None or near[place][now[0]] or (not carried and near[index][now[0]])
    if carried and carries_now:
        return reachable
    if carried:
        # Released: it may land on anything except what it carried.
        return reachable and not any(base >= 0 and index in _CHAINS[before][base] for base in now)
    if carries_now:
        # Lifted, or on a lifted cube; in the second case, its old support was not lower than the new one.
        return index == place or (place is not None and len(was) > len(_CHAINS[before][place]) and reachable)
    return len(now) <= len(was) and reachable


@lru_cache(maxsize=1 << 12)
def _after_one(before: Supports, near: tuple[tuple[bool, ...], ...]) -> int:
    """Return the fewest primitives to the tower, where the first may move only cubes for which ``near`` holds."""
    left = _primitives_left()
    return min(left[after] for after in _ALL if _one_primitive(before, after, near))


@lru_cache(maxsize=1)
def _primitives_left() -> dict[Supports, int]:
    """Return the fewest primitives to the tower from every arrangement, without limits on distance."""
    fewest, queue = {TOWER: 0}, deque([TOWER])
    while queue:
        state = queue.popleft()
        for before in _ALL:
            if before not in fewest and _one_primitive(before, state, _EVERYTHING_NEAR):
                fewest[before] = fewest[state] + 1
                queue.append(before)
    return fewest
