"""A judge of pairs and corrections that shares no code with the product: its own rules of both puzzles.

It knows what was played, said and sent, and reads nothing of the product but the rows that it judges.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image

Cell = tuple[int, int]
State = tuple[Cell, frozenset[Cell]]
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


@dataclass(frozen=True)
class Played:
    """An episode with the actions that were played."""

    env: str
    level: str
    horizon: int
    actions: Sequence[str]
    """One action per turn; any word but a move changes nothing."""
    sent: Mapping[int, Sequence[Any]]
    """Messages before the replies, as :func:`shown` returns them, where they are seen."""
    replies: Mapping[int, Any]
    """The recorded replies, as :func:`shown` returns them."""


def start(level: str) -> State:
    """Return the first state: the player and the boxes."""
    cells = {(r, c): mark for r, line in enumerate(level.split("\n")) for c, mark in enumerate(line)}
    player = next(cell for cell, mark in cells.items() if mark in "@+S")
    return player, frozenset(cell for cell, mark in cells.items() if mark in "$*")


def moved(env: str, level: str, state: State, action: str) -> State:
    """Return the state after an action."""
    rows, (player, boxes) = level.split("\n"), state
    if action not in MOVES or is_over(env, level, state):
        return state
    (r, c), (dr, dc) = player, MOVES[action]
    to, beyond = (r + dr, c + dc), (r + 2 * dr, c + 2 * dc)
    if env == "frozenlake":
        return (to, boxes) if 0 <= to[0] < len(rows) and 0 <= to[1] < len(rows[0]) else state
    if rows[to[0]][to[1]] == "#" or (to in boxes and (rows[beyond[0]][beyond[1]] == "#" or beyond in boxes)):
        return state
    return to, boxes - {to} | {beyond} if to in boxes else boxes


def is_won(env: str, level: str, state: State) -> bool:
    """Return whether a state is the goal."""
    rows, (player, boxes) = level.split("\n"), state
    return rows[player[0]][player[1]] == "G" if env == "frozenlake" else all(rows[r][c] in ".*+" for r, c in boxes)


def is_over(env: str, level: str, state: State) -> bool:
    """Return whether the episode is over, won or in a hole."""
    hole = env == "frozenlake" and level.split("\n")[state[0][0]][state[0][1]] == "H"
    return hole or is_won(env, level, state)


def within(env: str, level: str, state: State, turns: int) -> bool:
    """Return whether the goal can be reached in so many turns."""
    seen = layer = {state}
    for _ in range(turns):
        if any(is_won(env, level, each) for each in layer):
            return True
        layer = {moved(env, level, each, move) for each in layer for move in MOVES} - seen
        seen = seen | layer
    return any(is_won(env, level, each) for each in layer)


def pixels(data: bytes) -> str:
    """Return a digest of the pixels of a picture."""
    with Image.open(io.BytesIO(data)) as image:
        return hashlib.sha256(repr(image.size).encode() + image.convert("RGB").tobytes()).hexdigest()


def shown(message: Mapping[str, Any], pictures: Iterator[str]) -> Any:
    """Return role, texts, digests of pictures and calls of a message of an export."""
    content = message["content"]
    texts = [part["text"].strip() for part in content if part["type"] == "text" and part["text"].strip()]
    digests = [next(pictures) for part in content if part["type"] == "image"]
    calls = [
        (each["function"]["name"], json.dumps(json.loads(each["function"]["arguments"]), sort_keys=True))
        for each in message.get("tool_calls") or ()
    ]
    return message["role"], tuple(texts), tuple(digests), tuple(calls)


def complaints(
    kind: str, row: Mapping[str, Any], played: Played, form: str, word_of: Callable[[str], str]
) -> Iterator[str]:
    """Yield what is wrong with a row.

    Args:
        kind: ``pairs`` or ``corrections``.
        row: the row.
        played: its episode.
        form: regular expression of a whole reply of the source, text and calls, whose group is the word of the action.
        word_of: returns the action that a word of the source means.
    """
    t, env, level = row["t"], played.env, played.level
    state = start(level)
    for action in played.actions[:t]:
        state = moved(env, level, state, action)
    pictures = iter([pixels(image["bytes"]) for image in row["images"]])
    prompt = [shown(message, pictures) for message in row["prompt"]]
    if prompt != [*played.sent.get(t, prompt)] or next(pictures, None):
        yield f"step {t}: its prompt is not what the agent was sent"
    replies = (
        {"chosen": row["chosen"], "rejected": row["rejected"]} if kind == "pairs" else {"chosen": row["completion"]}
    )
    for side, messages in replies.items():
        said = shown(messages[0], iter(()))
        match = re.fullmatch(form, " ".join([*said[1], *map(" ".join, said[3])]), re.DOTALL)
        if side == "rejected" and said != played.replies.get(t, said):
            yield f"step {t}: the rejected reply is not the agent's"
        if match is None:
            yield f"step {t}: the {side} reply {said} is not in the dialect of the source"
            continue
        after = moved(env, level, state, word_of(match[1]))
        if within(env, level, after, played.horizon - t - 1) != (side == "chosen"):
            yield f"step {t}: the {side} action {match[1]} is {'not safe' if side == 'chosen' else 'not fatal'}"
