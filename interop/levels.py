"""Recovery of an episode's level, actions and prompts, from what a source recorded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import GenerationError, PivotError
from ..core.identity import canonical_json, digest
from ..core.images import Frame
from ..core.messages import EncodedFrame, PromptMessages
from ..environments.base import EnvConfig, NamedActions, ParsedAction, PivotEnv, Task, actions_per_turn
from ..environments.grid import GridEnv
from ..environments.turns import ParsedReply, Reply, ReplyOutcome
from ..rollouts.parser import parse_reply
from ..rollouts.policies.imported import RECORDED, LeftOut, StateSource
from ..solvers.base import TURN_SEPARATOR
from .base import MOST_BYTES, Pictures, UnreadableError
from .boards import levels_in
from .episode import RecordedAction, RecordedEpisode, RecordedTurn
from .tiles import read_level

_FIRST_TRY = {"max_tries": 1, "max_states": 2_000_000}
"""Upper bounds of settings of generators, for a level of an imported episode."""


class LeftOutError(Exception):
    """An episode cannot be imported."""

    def __init__(self, kind: LeftOut, detail: str) -> None:
        """Keep the kind of reason, and its description."""
        super().__init__(detail)
        self.kind = kind
        self.finding: Any = None
        """Facts about the episode from the audit, if it was replayed."""


class StatelessError(LeftOutError):
    """An episode without a state, which cannot be replayed."""

    def __init__(self, detail: str) -> None:
        """Keep the description."""
        super().__init__(LeftOut.NO_STATE, detail)


def recover_task(env: PivotEnv, episode: RecordedEpisode, picture: Callable[[str], Frame]) -> tuple[Task, StateSource]:
    """Return the level of an episode, and its origin: the row, the generator of its seed, or its first picture.

    Raises:
        StatelessError: the episode has none of the three, or the picture gives no level.
        LeftOutError: what is recorded is not a level.
        UnreadableError: ``picture``, which decodes a recorded picture, cannot read it.
    """
    kind, config = type(env), env.config
    try:
        if episode.initial_state is not None:
            return _task_of_state(kind, config, episode, episode.initial_state), StateSource(episode.state_source)
    except (PivotError, ValueError) as error:
        raise LeftOutError(LeftOut.NO_STATE, str(error)) from error
    if episode.seed is not None:
        return _level_of_seed(kind, config, episode, picture)
    if episode.distances is not None:
        raise StatelessError("the log has distances to the target, but no state of its simulator")
    first = episode.turns[0].frame
    text = episode.turns[0].observation or ""
    boards = {*levels_in(kind, text)}
    if len(boards) > 1 or (boards and "example" in text.casefold()):
        raise StatelessError(
            f"the text before its first reply shows {len(boards)} boards, and may show an example; record initial_state"
        )
    if not boards and first is None:
        raise StatelessError("it has neither initial_state nor seed, and no first picture or board")
    level = None if first is None else read_level(kind.profile.name, picture(first))
    if boards:
        board = boards.pop()
        if level is not None and kind.canonical_state(level) != kind.canonical_state(board):
            raise LeftOutError(LeftOut.DISAGREES, "the board in the text and the first picture show different levels")
        return _task_of_state(kind, config, episode, board), StateSource.ROW
    if level is None:
        raise StatelessError(
            f"it has neither initial_state nor seed, and its first picture is not made of tiles of {kind.profile.name} "
            "that are known to the pixel"
        )
    return _task_of_state(kind, config, episode, level), StateSource.PICTURE


def _level_of_seed(
    kind: type[PivotEnv], config: EnvConfig, episode: RecordedEpisode, picture: Callable[[str], Frame]
) -> tuple[Task, StateSource]:
    """Return the level of a seed by PIVOT's generator, or that of the first picture if they differ.

    Raises:
        LeftOutError: neither gives a level.
    """
    first = episode.turns[0].frame
    shown = None if first is None else read_level(kind.profile.name, picture(first))
    try:
        task = _generated(kind, config, episode.seed or 0)
    except (LeftOutError, PivotError, ValueError) as error:
        if shown is None:
            raise LeftOutError(LeftOut.NO_STATE, str(error)) from error
        return _task_of_state(kind, config, episode, shown), StateSource.PICTURE
    if shown is None or kind.canonical_state(shown) == kind.canonical_state(task.initial_state):
        return task, StateSource.SEED
    return _task_of_state(kind, config, episode, shown), StateSource.PICTURE


def _generated(kind: type[PivotEnv], config: EnvConfig, seed: int) -> Task:
    """Return the level of a seed.

    Only the first try of a generator gives it, so that the settings, which the source names, get no more tries.

    Raises:
        LeftOutError: the first try gives none.
    """
    fields = type(config).model_fields
    bounds = {name: min(getattr(config, name), most) for name, most in _FIRST_TRY.items() if name in fields}
    try:
        if kind.make_task(config.model_copy(update=bounds), seed).seed == seed:
            return kind.make_task(config, seed)
    except GenerationError:
        pass
    raise LeftOutError(
        LeftOut.NO_STATE,
        f"seed {seed} makes no level of these settings at the first try, so another generator made it; record the "
        "initial state",
    )


def _task_of_state(kind: type[PivotEnv], config: EnvConfig, episode: RecordedEpisode, state: str) -> Task:
    canonical = kind.canonical_state(state)
    level = canonical if issubclass(kind, GridEnv) else state  # primitiveskill's canonical text has no stages
    named = digest([level, episode.seed, episode.instruction, episode.goal_idx, episode.eval_set], 12)
    return Task(
        task_id=episode.task_id or f"{kind.profile.name}-{config.digest()}-import-{named}",
        seed=episode.seed,
        initial_state=level,
        instruction=episode.instruction or getattr(kind, "instruction", ""),
        goal_idx=episode.goal_idx,
        eval_set=episode.eval_set,
    )


@dataclass(frozen=True, slots=True)
class Slot:
    """One step of the store: a turn, or one of its actions where the environment has no turns of several actions."""

    turn: int
    action: ParsedAction | None
    parsed: ParsedReply
    first: bool
    """True for the first of its turn, which has the reply."""


def slots_of(env: PivotEnv, episode: RecordedEpisode) -> list[Slot]:
    """Return the steps of an episode.

    Raises:
        LeftOutError: an action is none of the environment, or a turn has too many.
    """
    return [slot for t, turn in enumerate(episode.turns) for slot in _slots_of_turn(env, episode, t, turn)]


def _slots_of_turn(env: PivotEnv, episode: RecordedEpisode, t: int, turn: RecordedTurn) -> Iterator[Slot]:
    whole = actions_per_turn(env.config)
    most, profile = (1 if whole > 1 else episode.actions_per_turn), env.profile
    if turn.actions is None:
        if most > 1 or turn.response is None:
            raise LeftOutError(LeftOut.ACTION, f"turn {t} has no actions, and no reply of one action to read them from")
        parsed = parse_reply(
            turn.response, profile.answer_tag, env.parse_action, profile.reply_limit, keeps_case=profile.keeps_case
        )
        yield Slot(t, parsed.action, parsed, first=True)
        return
    if whole > 1:
        yield _whole_turn(env, t, turn, turn.actions, whole)
        return
    if len(turn.actions) > most:
        raise LeftOutError(LeftOut.ACTION, f"turn {t} has {len(turn.actions)} actions, actions_per_turn is {most}")
    for index in range(most):
        if index < len(turn.actions):
            action = _action(env, t, turn.actions[index])
            valid = action is not None if turn.action_valid is None else turn.action_valid and action is not None
            outcome = ReplyOutcome.NOT_AN_ACTION if action is None else ReplyOutcome.OK
        else:
            action, valid = None, False
            outcome = ReplyOutcome.UNUSED if index else ReplyOutcome.NOT_AN_ACTION
        yield Slot(t, action, ParsedReply(action, valid, outcome), first=index == 0)


def _whole_turn(
    env: PivotEnv, t: int, turn: RecordedTurn, actions: Sequence[str | int | RecordedAction], most: int
) -> Slot:
    """Return a turn of several actions as one step; its unusable words did nothing."""
    usable = [action for raw in actions if (action := _action(env, t, raw)) is not None]
    moves = [move for action in usable for move in action.name.split(TURN_SEPARATOR)]
    if len(moves) > most:
        raise LeftOutError(LeftOut.ACTION, f"turn {t} has {len(moves)} actions, actions_per_turn is {most}")
    action = ParsedAction(TURN_SEPARATOR.join(moves)) if moves else None
    valid = action is not None and (turn.action_valid is None or turn.action_valid)
    outcome = ReplyOutcome.NOT_AN_ACTION if action is None else ReplyOutcome.OK
    return Slot(t, action, ParsedReply(action, valid, outcome), first=True)


def _action(env: PivotEnv, t: int, raw: str | int | RecordedAction) -> ParsedAction | None:
    """Return an action of the environment; None for its word for an unusable reply."""
    profile, usable = env.profile, ", ".join(env.actions) or "see its grammar"
    if isinstance(raw, int):
        if not isinstance(env, NamedActions) or raw > env.last_index:
            raise LeftOutError(LeftOut.ACTION, f"turn {t}: found the action {raw}, expected an index of: {usable}")
        raw = env.action_name(raw) if isinstance(env, GridEnv) else (*env.actions, profile.unusable_action)[raw]
    if isinstance(raw, RecordedAction):
        try:
            env.encode_action(raw.name, raw.payload)
        except ValueError as error:
            raise LeftOutError(LeftOut.ACTION, f"turn {t}: {error}") from error
        return None if raw.name == profile.unusable_action else ParsedAction(raw.name, raw.payload)
    text = raw.strip() if profile.keeps_case else raw.strip().casefold()
    if text == profile.unusable_action:
        return None
    action = env.parse_action(text if actions_per_turn(env.config) == 1 else text.replace(TURN_SEPARATOR, ","))
    if action is None:
        raise LeftOutError(
            LeftOut.ACTION,
            f"turn {t}: {raw[:60]!r} is not an action of {profile.name} ({usable}); write [] for a turn without one",
        )
    return action


class Prompts:
    """Reader of the recorded prompts of an episode; each picture is encoded once."""

    def __init__(self, pictures: Pictures) -> None:
        """Read pictures with ``pictures``."""
        self._pictures = pictures
        self._frames: dict[str, EncodedFrame | None] = {}
        self._left = MOST_BYTES

    def of(self, turn: RecordedTurn) -> tuple[PromptMessages | None, dict[str, EncodedFrame]]:
        """Return the prompt of a turn and its pictures by frame id.

        The prompt is None where none was recorded, a picture of it cannot be read, or the prompts of the episode are
        longer than a line of a source may be.
        """
        frames: dict[str, EncodedFrame] = {}
        messages: list[dict[str, Any]] = []
        for message in turn.prompt:
            parts: list[dict[str, Any]] = []
            for part in message["content"]:
                if part["type"] == "text":
                    self._left -= len(part["text"])
                    parts.append(part)
                elif frame := self._frame(part["image"]):
                    frames[frame.frame_id] = frame
                    parts.append({"type": "image", "frame_id": frame.frame_id})
                else:
                    return None, {}
            messages.append({**message, "content": parts})
        if not messages or self._left < 0:
            return None, {}
        return PromptMessages(digest(messages), *RECORDED, tuple(messages)), frames

    def _frame(self, name: str) -> EncodedFrame | None:
        if name not in self._frames:
            try:
                self._frames[name] = EncodedFrame.encode(self._pictures.frame(name))
            except UnreadableError:
                self._frames[name] = None
        return self._frames[name]


def calls_of(episode: RecordedEpisode) -> str | None:
    """Return the tool calls in the replies in the form of the table ``imports``; None if there are none."""
    if not any(turn.calls or any("tool_calls" in each for each in turn.prompt) for turn in episode.turns):
        return None
    calls = [[{"name": call.name, "arguments": call.arguments} for call in turn.calls] for turn in episode.turns]
    return canonical_json(calls)


def replies_of(episode: RecordedEpisode, slots: list[Slot], prompts: Prompts) -> list[Reply]:
    """Return a reply per step; the prompt and the raw reply of a turn belong to its first step."""
    replies: list[Reply] = []
    for slot in slots:
        turn = episode.turns[slot.turn]
        if not slot.first:
            replies.append(Reply("", parsed=slot.parsed))
            continue
        prompt, pictures = prompts.of(turn)
        replies.append(
            Reply(
                turn.response or "",
                finish_reason=turn.finish_reason or "",
                token_ids=None if turn.token_ids is None else tuple(turn.token_ids),
                logprobs=None if turn.logprobs is None else tuple(turn.logprobs),
                parsed=slot.parsed,
                prompt=prompt,
                pictures=pictures,
            )
        )
    return replies
