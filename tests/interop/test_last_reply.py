"""A last reply that no picture confirms: when its meaning can affect the label."""

import pytest
from pivot.environments.base import Task
from pivot.environments.frozenlake import FrozenLakeConfig, FrozenLakeEnv
from pivot.interop.audit import last_decides_nothing
from pivot.interop.episode import RecordedEpisode
from pivot.interop.replay import Agreement

LEVEL = "FFFS\nGFFF\nFFHF\nHFHF"


@pytest.mark.parametrize(
    ("level", "turns", "said", "success", "decided"),
    [
        (LEVEL, ("down|up|up", "right|down|left"), "left, left", False, True),
        (LEVEL, ("down|up|up", "right|down|left"), "left, left", None, False),
        (LEVEL, ("down|up|up", "right|down|left"), "go left, left", False, False),
        (LEVEL, ("down|up|up", "right|down|left"), "", False, False),
        ("FHSF\nFFFF\nFFFF\nHFFG", ("up|up|up",), "up, left, down", False, False),  # into a hole, or not
    ],
)
def test_a_last_reply_decides_nothing_where_every_reading_gives_one_label(
    level: str, turns: tuple[str, ...], said: str, success: bool | None, decided: bool
) -> None:
    """The goal was two steps to the left, so ``left, left`` was not played; one step, or none, leaves it as near."""
    env = FrozenLakeEnv(FrozenLakeConfig(actions_per_turn=3, horizon=3))
    task = Task("lake", 1, level, "Go.")
    replies = [*({"response": ""} for _ in turns), {"response": f"<think>down</think>{said}"}]
    recorded = RecordedEpisode.model_validate({"env": "frozenlake", "turns": replies, "success": success})
    agreement = Agreement(moves=[[(name, None)] for name in (*turns, "invalid")])
    assert last_decides_nothing(env, task, recorded, agreement) is decided
