"""The kinds of players whose episodes the benchmark asks about, in known shares.

Each is the scripted policy with other habits, so that a predictor which has learned one player's faults is not enough.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

UNSKILLED = -1e9
"""Skill at which a player never makes a move on purpose."""


@dataclass(frozen=True, slots=True)
class PlayerKind:
    """One kind of player."""

    share: float
    """Share of the items' failures, and of their other episodes as far as there are enough."""
    weight: float
    """Share of the episodes that are played, from which the items are chosen."""
    habits: Mapping[str, Mapping[str, float]]
    """Habits that differ from the default ones, by environment."""


PLAYERS: Mapping[str, PlayerKind] = {
    "default": PlayerKind(0.4, 0.32, {}),
    # Makes more right moves; it plays more episodes than its share, because fewer of them are lost.
    "better": PlayerKind(
        0.2,
        0.25,
        {
            "sokoban": {"skill": -0.8},
            "frozenlake": {"skill": -0.3},
            "navigation": {"skill": -0.4, "lost_heart": 0.3},
            "primitiveskill": {"skill": -1.5, "baffled": 0.05},
            "svg": {"faults": 0.3, "better": 0.7, "worse": 0.1},
            "gym": {"skill": 1.0},
        },
    ),
    # Loses turns: steps aside, turns around, submits again.
    "wasteful": PlayerKind(
        0.1,
        0.1,
        {
            "sokoban": {"blunder": 0.0, "hesitation": 1.0},
            "frozenlake": {"blunder": 0.0, "hesitation": 1.0},
            "navigation": {"turning": 0.9, "pushing": 0.05},
            "primitiveskill": {"baffled": 0.6},
            "svg": {"better": 0.15, "worse": 0.1, "hair": 0.6},
            "gym": {"blunder": 0.0, "hesitation": 1.0},
        },
    ),
    # Pushes on: into dead ends, holes and obstacles, and away from the target.
    "pushing": PlayerKind(
        0.1,
        0.13,
        {
            "sokoban": {"blunder": 1.0, "hesitation": 0.2, "misread": 0.0},
            "frozenlake": {"blunder": 0.3, "hesitation": 0.2, "misread": 0.0},
            "navigation": {"turning": 0.05, "pushing": 0.9},
            "primitiveskill": {"shaking": 18.0, "faithful": 1.0},
            "svg": {"better": 0.2, "worse": 0.6},
            "gym": {"blunder": 1.0, "hesitation": 0.2, "misread": 0.0},
        },
    ),
    # Writes replies that cannot be used.
    "sloppy": PlayerKind(
        0.1,
        0.1,
        {
            "sokoban": {"bad_format": 0.35, "shouting": 0.2},
            "frozenlake": {"bad_format": 0.35, "shouting": 0.2},
            "navigation": {"bad_format": 0.35},
            "primitiveskill": {"bad_format": 0.25, "spoilt": 0.3},
            "svg": {"broken": 0.3, "empty": 0.15, "fenced": 0.3},
            "gym": {"bad_format": 0.35, "shouting": 0.2},
        },
    ),
    # Moves at random; where an action is a whole plan or a document, it is always a wrong one.
    "random": PlayerKind(
        0.1,
        0.1,
        {
            "sokoban": {"skill": UNSKILLED, "blunder": 0.0, "hesitation": 0.0},
            "frozenlake": {"skill": UNSKILLED, "blunder": 0.0, "hesitation": 0.0},
            "navigation": {"skill": UNSKILLED, "turning": 0.0, "pushing": 0.0, "levelling": 0.0, "lost_heart": 0.0},
            "primitiveskill": {"skill": UNSKILLED, "well_begun": 0.0, "recovery": 0.0, "baffled": 0.0},
            "svg": {"faults": 1.0, "exact": 0.0, "better": 0.0, "worse": 0.5},
            "gym": {"skill": UNSKILLED, "blunder": 0.0, "hesitation": 0.0},
        },
    ),
}
"""Kinds by name, the default one first."""


def mixed_policy(environments: Collection[str]) -> dict[str, Any]:
    """Return the config of the policy that plays the benchmark."""
    habits = {
        name: {env: dict(changes) for env, changes in kind.habits.items() if env in environments}
        for name, kind in PLAYERS.items()
    }
    weights = {name: kind.weight for name, kind in PLAYERS.items()}
    return {"name": "mixed", "options": {"weights": weights, "habits": habits}}
