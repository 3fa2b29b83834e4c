"""Replay of a recorded episode in the environment, and the comparison with what the source recorded."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from typing import Any

from gymnasium.error import ResetNeeded

from ..core.errors import PivotError
from ..core.images import Frame, frame_id
from ..environments.base import PivotEnv, Task
from ..environments.turns import ReplyOutcome
from ..rollouts.confirm import BOARD, END, INFO, PICTURE, REWARD, STATE, Move
from ..rollouts.policies.imported import Compared, LeftOut
from .base import UnreadableError
from .boards import board_of_state, boards_of, map_of_board
from .episode import RecordedEpisode
from .levels import LeftOutError, Slot
from .tiles import read_level

_SAME_REWARD = 1e-6
_POSITION = re.compile(r"^@ \d+ \d+$", re.MULTILINE)


@dataclass(slots=True)
class Agreement:
    """Comparison of a recorded episode with its replay; None where the source recorded nothing to compare."""

    end: bool | None = None
    states: bool | None = None
    rewards: bool | None = None
    frames: bool | None = None
    first: dict[Compared, str] = field(default_factory=dict[Compared, str])
    """First difference of each kind."""
    contradiction: str = ""
    """First recorded value that no reading of the episode as it is replayed can explain: a picture of another state, a
    board, a reward of this scheme on another turn, or a turn after the end."""
    recorded: list[list[str]] = field(default_factory=list[list[str]])
    """Kinds of values, those of :mod:`pivot.rollouts.confirm`, that agree: before the first turn and after each."""
    moves: list[list[Move]] = field(default_factory=list[list[Move]])
    """Moves of each turn of the replay."""
    over: bool = False
    """Whether the replay ended the episode."""
    success: bool = False
    trailing: int = 0
    """Replies after the end that hold no action."""
    refuted: bool = False
    """Whether the replay ends differently from the log for a reason other than the horizon."""
    cut: int = 0
    """Turns that the log has after the budget of the replay is spent."""

    def note(self, kind: Compared, same: bool, difference: Callable[[], str]) -> None:
        """Add one comparison."""
        if getattr(self, kind) is not False:
            setattr(self, kind, same)
        if not same:
            self.first.setdefault(kind, difference())

    def contradict(self, text: str) -> None:
        """Add a contradiction."""
        self.contradiction = self.contradiction or text

    def require(self, kinds: Sequence[Compared]) -> None:
        """Check that these kinds agree, or were not recorded.

        Raises:
            LeftOutError: one differs.
        """
        for kind in kinds:
            if getattr(self, kind) is False:
                raise LeftOutError(LeftOut.DISAGREES, f"{kind}: {self.first[kind]}")


@dataclass(frozen=True, slots=True)
class Pixels:
    """Reader of recorded pictures."""

    frame_id: Callable[[str], str]
    frame: Callable[[str], Frame]


def replay(env: PivotEnv, task: Task, episode: RecordedEpisode, slots: Sequence[Slot], pixels: Pixels) -> Agreement:
    """Execute the actions of an episode and compare.

    Raises:
        LeftOutError: the level cannot be started, or the environment breaks.
        UnreadableError: a recorded picture cannot be read.
    """
    agreement = Agreement()
    env.draw_frames = False
    try:
        env.reset(options={"state": task.initial_state, "instruction": task.instruction})
        _Replay(env, episode, pixels, agreement).play(slots)
    except (LeftOutError, UnreadableError):
        raise
    except ResetNeeded as error:
        raise LeftOutError(LeftOut.NO_STATE, "the level is over before the first action") from error
    except (PivotError, ValueError) as error:
        raise LeftOutError(LeftOut.NO_STATE, f"the level cannot be replayed: {error}") from error
    return agreement


class _Replay:
    def __init__(self, env: PivotEnv, episode: RecordedEpisode, pixels: Pixels, agreement: Agreement) -> None:
        self._env, self._episode, self._pixels, self._agreement = env, episode, pixels, agreement
        self._unlike: list[str] = []
        """Moments of pictures that differ and show no readable state."""
        self._other_boards: dict[str, str] = {}
        """Boards of other states, with the first moment of each."""
        self._unpaid: list[str] = []
        """Turns whose reward differs from the recorded one."""
        self._own_notation = False
        self._without_player: list[tuple[list[str], bool, str]] = []
        """Maps without a player: in PIVOT's notation, a last line ``@ row column`` is missing only if it is on S."""
        self._exact = False
        """Whether a recorded picture has the pixels of the replay."""

    def play(self, slots: Sequence[Slot]) -> None:
        """Execute the turns and compare every moment."""
        env, episode, agreement = self._env, self._episode, self._agreement
        over, terminated, success, returned = False, False, False, 0.0
        agreement.recorded.append([])
        groups = [(turn, list(group)) for turn, group in groupby(slots, key=lambda slot: slot.turn)]
        for turn, group in groups:
            recorded, reward = episode.turns[turn], 0.0
            self._view(recorded.state, recorded.frame, recorded.observation, f"before turn {turn}")
            if over:
                self._after_the_end([slot for _, rest in groups[turn:] for slot in rest], turn, terminated=terminated)
                break
            moves: list[Move] = []
            info: Mapping[str, Any] = {}
            for slot in group:
                if over:
                    break
                name = env.profile.unusable_action if slot.action is None else slot.action.name
                moves.append((name, None if slot.action is None else slot.action.payload))
                _, gain, terminated, truncated, info = env.step(env.encode_action(*moves[-1]))
                over, returned = bool(terminated or truncated), returned + float(gain)
                success = bool(info.get("success")) if env.profile.has_success_bit else returned >= env.success_return
                if slot.parsed.outcome is not ReplyOutcome.UNUSED:
                    reward += float(gain)
            agreement.moves.append(moves)
            agreement.recorded.append(
                [*self._reward(recorded.reward, reward, turn), *self._info(recorded.info, info, turn)]
            )
        else:
            self._view(episode.final_state, episode.final_frame, episode.final_observation, "at the end")
        agreement.over, agreement.success = over, success
        self._end(terminated=bool(terminated))
        self._judge()

    def _after_the_end(self, rest: Sequence[Slot], turn: int, *, terminated: bool) -> None:
        """Compare the turns that the log has after the end of the replay."""
        episode, agreement = self._episode, self._agreement
        turns = {slot.turn for slot in rest}
        silent = all(slot.action is None for slot in rest)
        if (silent and all(episode.turns[each].reading is not None for each in turns)) or (
            episode.success is not None and len(turns) <= episode.chat.trailing
        ):
            agreement.trailing = len(turns)
            return
        text = f"the replay is over before turn {turn}, the log has {len(episode.turns)} turns"
        agreement.note(Compared.END, False, lambda: text)
        agreement.refuted = True
        if terminated:
            agreement.contradict(text)
        else:
            agreement.cut = len(turns)

    def _view(self, state: str | None, frame: str | None, text: str | None, when: str) -> None:
        """Compare the recorded values of a moment."""
        env, agreement, kinds = self._env, self._agreement, self._agreement.recorded[-1]
        if state is not None:
            current = env.changing_state()
            agreement.note(
                Compared.STATES, state == current, lambda: f"{when} it is {current!r}, the log says {state!r}"
            )
            kinds += [STATE] if state == current else []
        if frame is not None:
            same = self._same_picture(frame, when)
            agreement.note(Compared.FRAMES, same, lambda: f"the picture {when} has other pixels")
            kinds += [PICTURE] if same else []
        boards = boards_of(type(env), text) if text else []
        if boards:
            current = board_of_state(type(env), env.state_text())
            shows_player = env.profile.name != "frozenlake" or "P" in boards[-1]
            self._own_notation = self._own_notation or (bool(text) and _POSITION.search(text or "") is not None)
            if not shows_player and "S" in boards[-1] and len(agreement.recorded) > 1:
                self._without_player.append((kinds, current == board_of_state(type(env), boards[-1]), when))
            if boards[-1] == current or (not shows_player and map_of_board(boards[-1]) == map_of_board(current)):
                kinds += [BOARD] if shows_player or len(agreement.recorded) == 1 else []
            elif current not in boards:
                self._other_boards.setdefault(boards[-1], when)

    def _same_picture(self, frame: str, when: str) -> bool:
        """Return whether a picture has the pixels of the current state; known tiles of another skin are read."""
        env = self._env
        if self._pixels.frame_id(frame) == frame_id(env.render()):  # pyright: ignore[reportArgumentType]
            self._exact = True
            return True
        if self._agreement.contradiction or self._exact:
            self._unlike.append(when)
            return False
        level = read_level(env.profile.name, self._pixels.frame(frame))
        if level is None:
            self._unlike.append(when)
        elif type(env).canonical_state(level) == type(env).canonical_state(env.state_text()):
            self._agreement.recorded[-1].append(PICTURE)
        else:
            self._agreement.contradict(f"the picture {when} shows another state than the replay")
        return False

    def _reward(self, recorded: float | None, reward: float, turn: int) -> list[str]:
        if recorded is None:
            return []
        same = math.isclose(recorded, reward, rel_tol=0, abs_tol=_SAME_REWARD)
        text = f"turn {turn} gives {reward:g}, the log says {recorded:g}"
        self._agreement.note(Compared.REWARDS, same, lambda: text)
        self._unpaid += [] if same else [text]
        return [REWARD] if same else []

    def _info(self, recorded: Mapping[str, Any] | None, info: Mapping[str, Any], turn: int) -> Iterator[str]:
        """Compare measurements that do not depend on how the reply was read."""
        for name in sorted((recorded or {}).keys() & info.keys() - {"action_is_valid", "success", "observation_text"}):
            value, own = (recorded or {})[name], info[name]
            if value is None or own is None:
                continue
            numbers = isinstance(value, int | float) and isinstance(own, int | float)
            if value == own or (numbers and math.isclose(value, own, rel_tol=0, abs_tol=_SAME_REWARD)):
                yield f"{INFO}:{name}"
            else:
                self._agreement.contradict(f"{name} after turn {turn} is {own}, the log says {value}")

    def _end(self, *, terminated: bool) -> None:
        """Compare the recorded end with the replay's; a failure at the end of the turn budget confirms nothing."""
        env, episode, agreement = self._env, self._episode, self._agreement
        said_over = bool(episode.terminated) or bool(episode.truncated)
        if not agreement.over:
            if said_over or episode.success:
                agreement.refuted = bool(episode.success or episode.terminated)
                ended = "success" if episode.success else "its end"
                hint = (
                    ""
                    if agreement.refuted
                    else f"; its budget was --set {env.profile.name}.horizon={len(episode.turns)}"
                )
                agreement.note(Compared.END, False, lambda: f"the log says {ended}, the replay goes on{hint}")
            return
        if episode.success is not None:
            same, said = episode.success == agreement.success, episode.success
            agreement.refuted = agreement.refuted or not same
            agreement.note(Compared.END, same, lambda: f"success is {agreement.success}, the log says {said}")
        elif said_over:
            agreement.note(Compared.END, True, str)
        if episode.truncated and episode.terminated is False and terminated:
            agreement.refuted = True
            agreement.note(
                Compared.END, False, lambda: "the log says that the budget ended it, the replay was terminated"
            )
        if agreement.end and not agreement.trailing:
            kinds = agreement.recorded[-1]
            kinds += [f"{END}:terminated"] if episode.terminated or episode.success else []
            kinds += [f"{END}:success"] if episode.success else []

    def _judge(self) -> None:
        """Decide which differences contradict the replay, and which are those of another renderer or reward scheme."""
        env, agreement = self._env, self._agreement
        seen = {kind for kinds in agreement.recorded for kind in kinds}
        if self._unlike and PICTURE in seen and env.config.repeats_exactly:
            agreement.contradict(f"the picture {self._unlike[0]} has other pixels")
        for moment, is_current, when in self._without_player if self._own_notation else ():
            moment.extend([BOARD] if is_current else [])
            if not is_current:
                agreement.contradict(f"the board {when} is not that of the replay")
        if self._other_boards and (BOARD in seen or len(self._other_boards) > 1):
            agreement.contradict(f"the board {next(iter(self._other_boards.values()))} is not that of the replay")
        if self._unpaid:
            paid = [turn.reward for turn in self._episode.turns if turn.reward is not None]
            if all(any(abs(each - own) < _SAME_REWARD for own in _scheme(env)) for each in paid):
                agreement.contradict(f"rewards: {self._unpaid[0]}")
            for kinds in agreement.recorded:
                kinds[:] = [kind for kind in kinds if kind != REWARD]


def _scheme(env: PivotEnv) -> set[float]:
    """Return the rewards that a turn of a puzzle can have."""
    config: Any = env.config
    if not hasattr(config, "step_reward"):
        return set()
    most = range(min(getattr(config, "actions_per_turn", 1), 4) + 1)
    on, off = getattr(config, "box_on_reward", 0.0), getattr(config, "box_off_reward", 0.0)
    choices = product((0.0, config.success_reward), most, most)
    return {config.step_reward + won + on * pushed + off * pulled for won, pushed, pulled in choices}
