"""Random chats in many dialects, with known actions: an oracle by construction."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pivot.core.images import encode_png, frame_id
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.environments.grid import ACTIONS
from pivot.environments.sokoban import SokobanConfig, SokobanEnv
from pivot.interop.boards import board_of_state

LEVELS = {
    "sokoban": ("######\n#@ $.#\n#    #\n######", "#######\n#@    #\n# $ . #\n#     #\n#######"),
    "frozenlake": ("SFFF\nFHFH\nFFFH\nHFFG", "SFFH\nFFFF\nHFHF\nFFFG"),
}
HORIZON = 6
SYMBOLS = {"sokoban": str.maketrans(" .$*@+", "_OX√PS"), "frozenlake": str.maketrans("FH", "_O")}
"""Symbols of VAGEN and RAGEN for those of the environments."""


def _words(text: str) -> Mapping[str, str]:
    return dict(zip(ACTIONS, text.split(), strict=True))


WORDS = {
    "names": _words("up down left right"),
    "capitals": _words("Up Down Left Right"),
    "compass": _words("north south west east"),
    "french": _words("haut bas gauche droite"),
    "arrows": _words("↑ ↓ ← →"),
    "keys": _words("w s a d"),
    "letters": _words("U D L R"),
    "prefixed": _words("move_up move_down move_left move_right"),
    "gymnasium": _words("3 1 0 2"),
    "from one": _words("1 2 3 4"),
    "permuted": _words("2 0 3 1"),
    "opposite": _words("up down right left"),
    "unknown": _words("supren malsupren maldekstren dekstren"),
}
AMBIGUOUS = {"gymnasium", "from one", "permuted", "opposite", "unknown"}
"""Words whose meaning only a recorded value shows."""


def _call(name: str, arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}]}


REPLIES: dict[str, Callable[[str], Any]] = {
    "action": lambda word: f"<think>so</think><action>{word}</action>",
    "answer": lambda word: f"<think>so</think><answer>{word}</answer>",
    "stop": lambda word: f"<action>{word}.</action>",
    "react": lambda word: f"Thought: it is near.\nAction: {word}",
    "json": lambda word: json.dumps({"thought": "closer", "move": word}, ensure_ascii=False),
    "list": lambda word: json.dumps({"moves": [word]}, ensure_ascii=False),
    "boxed": lambda word: f"So \\boxed{{{word}}}",
    "call in text": lambda word: f'move(direction="{word}")',
    "open thought": lambda word: f"<think>so <action>{word}</action>",
    "tool": lambda word: {"content": None, **_call("move", {"direction": word})},
    "tool of two": lambda word: {"content": None, **_call("move", {"direction": word, "steps": 1})},
    "function": lambda word: {"content": None, "function_call": {"name": "go", "arguments": json.dumps({"to": word})}},
    "blocks": lambda word: {"content": [{"type": "tool_use", "name": "move", "input": {"direction": word}}]},
}
UNUSABLE = ("<action>jump</action>", "I am not sure.", "", "<action></action>")


@dataclass(slots=True)
class Chats:
    """A source of chats, with the actions that were played."""

    path: Path
    env: str
    played: list[tuple[list[str], str]] = field(default_factory=list[tuple[list[str], str]])
    """Actions and level of each episode."""


def make_env(env: str, level: str) -> SokobanEnv | FrozenLakeEnv:
    """Return the environment of a level."""
    rows = level.split("\n")
    if env == "frozenlake":
        return FrozenLakeEnv(FrozenLakeConfig(horizon=HORIZON, size=len(rows)))
    return SokobanEnv(SokobanConfig(horizon=HORIZON, rows=len(rows), cols=len(rows[0])))


def write_chats(
    folder: Path,
    rng: random.Random,
    env: str,
    dialect: Callable[[int], tuple[str, str]],
    *,
    shown: str = "",
    episodes: int = 8,
    unusable: float = 0.0,
    even: Sequence[str] = ACTIONS,
) -> Chats:
    """Write chats of a random player.

    Args:
        folder: where they are written.
        rng: source of all choices.
        env: environment.
        dialect: names of words and form of the replies of an episode, by its index.
        shown: ``picture``, ``board`` or ``symbols`` (a board of RAGEN) to record one before each turn and at the end.
        episodes: number of them.
        unusable: share of unusable replies.
        even: actions of the episodes of even number.
    """
    level = rng.choice(LEVELS[env])
    chats = Chats(folder / "chats.jsonl", env)
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for number in range(episodes):
        game, images, messages, actions = make_env(env, level), list[str](), list[dict[str, Any]](), list[str]()
        frame, _ = game.reset(options={"state": level})
        words, form = dialect(number)
        over, success = False, False
        while True:
            text = "Now:"
            if shown in ("board", "symbols"):
                board = board_of_state(type(game), game.state_text())
                text += f"\n{board.translate(SYMBOLS[env]) if shown == 'symbols' else board}"
            if shown == "picture":
                images.append(f"{frame_id(frame)}.png")
                (folder / images[-1]).write_bytes(encode_png(frame))
                text += " <image>"
            messages.append({"role": "user", "content": text})
            if over:
                break
            action = "invalid" if rng.random() < unusable else rng.choice(ACTIONS if number % 2 else even)
            reply = rng.choice(UNUSABLE) if action == "invalid" else REPLIES[form](WORDS[words][action])
            messages.append({"role": "assistant", **(reply if isinstance(reply, dict) else {"content": reply})})
            frame, _, terminated, truncated, info = game.step(game.encode_action(action))
            actions.append(action)
            over, success = terminated or truncated, bool(info["success"])
        chats.played.append((actions, level))
        row = {"id": str(number), "messages": messages, "success": success, "initial_state": level}
        row |= {"env": env, "env_config": game.config.decisive(), **({"images": images} if images else {})}
        lines.append(json.dumps(row))
    chats.path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return chats
