"""Replay of a recorded episode in the environment, and the comparison with what the source recorded."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from gymnasium.error import ResetNeeded

from ..environments.base import PivotEnv, Task
from ..errors import PivotError
from ..images import frame_id
from ..rollouts.base import ReplyOutcome
from ..rollouts.policies.imported import Compared, LeftOut
from .base import UnreadableError
from .episode import RecordedEpisode
from .levels import LeftOutError, Slot

_SAME_REWARD = 1e-6


@dataclass(slots=True)
class Agreement:
    """Comparison of a recorded episode with its replay; None where the source recorded nothing to compare."""

    end: bool | None = None
    states: bool | None = None
    rewards: bool | None = None
    frames: bool | None = None
    first: dict[Compared, str] = field(default_factory=dict[Compared, str])
    """First difference of each kind."""

    def note(self, kind: Compared, same: bool, difference: Callable[[], str]) -> None:
        """Add one comparison."""
        if getattr(self, kind) is not False:
            setattr(self, kind, same)
        if not same:
            self.first.setdefault(kind, difference())

    def require(self, kinds: Sequence[Compared]) -> None:
        """Check that these kinds agree, or were not recorded.

        Raises:
            LeftOutError: one differs.
        """
        for kind in kinds:
            if getattr(self, kind) is False:
                raise LeftOutError(LeftOut.DISAGREES, f"{kind}: {self.first[kind]}")


def replay(
    env: PivotEnv, task: Task, episode: RecordedEpisode, slots: Sequence[Slot], picture: Callable[[str], str]
) -> Agreement:
    """Execute the actions of an episode and compare; ``picture`` returns the frame id of a recorded picture.

    Raises:
        LeftOutError: the level cannot be started, or the environment breaks.
        UnreadableError: a recorded picture cannot be read.
    """
    agreement = Agreement()
    env.draw_frames = False
    try:
        env.reset(options={"state": task.initial_state, "instruction": task.instruction})
        _play(env, episode, slots, picture, agreement)
    except (LeftOutError, UnreadableError):
        raise
    except ResetNeeded as error:
        raise LeftOutError(LeftOut.NO_STATE, "the level is over before the first action") from error
    except (PivotError, ValueError) as error:
        raise LeftOutError(LeftOut.NO_STATE, f"the level cannot be replayed: {error}") from error
    return agreement


def _play(
    env: PivotEnv,
    episode: RecordedEpisode,
    slots: Sequence[Slot],
    picture: Callable[[str], str],
    agreement: Agreement,
) -> None:
    profile, over, success, returned = env.profile, False, False, 0.0
    for turn, group in groupby(slots, key=lambda slot: slot.turn):
        if over:
            turns = len(episode.turns)
            text = f"the replay is over before turn {turn}, the log has {turns} turns"
            agreement.note(Compared.END, False, lambda: text)  # noqa: B023 - called at once
            return
        recorded, reward = episode.turns[turn], 0.0
        _compare_view(env, recorded.state, recorded.frame, picture, agreement, f"before turn {turn}")
        for slot in group:
            if over:
                break
            name = profile.unusable_action if slot.action is None else slot.action.name
            payload = None if slot.action is None else slot.action.payload
            _, gain, terminated, truncated, info = env.step(env.encode_action(name, payload))
            over, returned = terminated or truncated, returned + float(gain)
            success = bool(info.get("success")) if profile.has_success_bit else returned >= env.success_return
            if slot.parsed.outcome is not ReplyOutcome.UNUSED:
                reward += float(gain)
        _compare_reward(recorded.reward, reward, turn, agreement)
    _compare_view(env, episode.final_state, episode.final_frame, picture, agreement, "at the end")
    _compare_end(episode, over=over, success=success, agreement=agreement)


def _compare_reward(recorded: float | None, reward: float, turn: int, agreement: Agreement) -> None:
    if recorded is not None:
        same = math.isclose(recorded, reward, rel_tol=0, abs_tol=_SAME_REWARD)
        agreement.note(Compared.REWARDS, same, lambda: f"turn {turn} gives {reward:g}, the log says {recorded:g}")


def _compare_view(
    env: PivotEnv, state: str | None, frame: str | None, picture: Callable[[str], str], agreement: Agreement, when: str
) -> None:
    if state is not None:
        current = env.changing_state()
        agreement.note(Compared.STATES, state == current, lambda: f"{when} it is {current!r}, the log says {state!r}")
    if frame is not None:
        recorded, drawn = picture(frame), frame_id(env.render())  # pyright: ignore[reportArgumentType]
        agreement.note(Compared.FRAMES, recorded == drawn, lambda: f"the picture {when} has other pixels")


def _compare_end(episode: RecordedEpisode, *, over: bool, success: bool, agreement: Agreement) -> None:
    said_over = bool(episode.terminated) or bool(episode.truncated)
    if not over:
        if said_over or episode.success:
            ended = "success" if episode.success else "its end"
            agreement.note(Compared.END, False, lambda: f"the log says {ended}, the replay goes on")
        return
    if episode.success is not None:
        agreement.note(
            Compared.END, episode.success == success, lambda: f"success is {success}, the log says {episode.success}"
        )
    elif said_over:
        agreement.note(Compared.END, True, str)
