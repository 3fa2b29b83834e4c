"""Episodes from chats: an assistant message is a turn, the picture before it is the last one since the turn before.

A chat says neither the environment nor how its replies are to be read, so the settings of its format do, unless the
record has fields of PIVOT's own format (``env``, ``env_config``, ``initial_state``, ``seed``, ``success`` and others).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile, zip_longest
from typing import Any, Literal

from pydantic import Field

from ..core import plugins
from ..core.errors import PluginError
from ..core.messages import is_thought, with_thought
from ..environments.base import PivotEnv
from ..rollouts.dialect import Call, Dialect, Read, contents_of, lenient, read_reply, words_of
from ..rollouts.policies.imported import LeftOut
from .base import SourceSettings, UnreadableError
from .episode import ChatFacts, RecordedEpisode
from .levels import LeftOutError

_STATED = re.compile(
    r"(?:up to|at most|max(?:imum)?(?: of)?|no more than|between 1 and|1\s?(?:-|–|to)) ?(\d{1,2}) ?"
    r"(?:\w+ )?(?:actions?|moves?|steps?)(?:\(s\))? "
    r"(?:at a time|at once|(?:per|each|a|every|in (?:one|a|each)) (?:turn|step|reply|response|message|round))",
    re.IGNORECASE,
)
_OF_EPISODE = set(RecordedEpisode.model_fields) - {"format", "turns", "final_frame", "final_state", "actions_per_turn"}


class ChatSettings(SourceSettings, Dialect):
    """Dialect of the chats of a source."""

    env: str = ""
    """Environment of the episodes, such as ``sokoban``, for records without a field ``env``."""
    dialect: Literal["declared", "auto"] = "declared"
    """``auto``: the dialect that the audit guesses from all replies is applied, if there is one that reads them."""
    masked: Literal["", "played", "skipped"] = ""
    """Whether replies with ``weight: 0`` or ``loss: false`` were played; by default what confirms them decides."""
    examples: int | None = Field(default=None, ge=0, le=64)
    """Replies at the beginning of every chat that are examples of the prompt and were not played; by default none, and
    the audit asks where all chats begin with the same replies."""
    trailing: int = Field(default=0, ge=0, le=64)
    """Most replies after the end of an episode that hold actions, too, and were not played; by default none."""
    agent: str = ""
    """Name of the agent whose replies are read, where a record has replies of several; of traces by default the first
    that is trained and has replied."""


def stated_limit(prompt: str) -> int:
    """Return the most actions of a turn that a prompt names, such as "up to 3 actions at a time"; 0 for none."""
    return max((int(each) for each in _STATED.findall(prompt)), default=0)


def call_of(name: Any, arguments: Any) -> Call:
    """Return a call whose arguments are an object or its JSON; other text becomes the argument ``input``."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {"input": arguments}
    return Call(str(name), arguments if isinstance(arguments, dict) else {"input": arguments})


def tool_calls_of(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the field ``tool_calls`` of a message.

    Raises:
        UnreadableError: it is not a list.
    """
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise UnreadableError(f"found tool_calls of type {type(calls).__name__}, expected a list")
    return [each for each in calls if isinstance(each, dict)]


@dataclass(slots=True)
class Message:
    """One message of a chat."""

    role: str
    text: str
    images: Sequence[str] = ()
    """Names or data URLs of its pictures."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the turn that the format knows: token_ids, logprobs, finish_reason."""
    calls: Sequence[Call] = ()
    """Its calls of tools. If there are any, they are the actions, and the text is not read."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The recorded message."""
    parts: Sequence[Mapping[str, Any]] = ()
    """Texts and pictures in their order; without them there is the text alone."""

    @property
    def sent(self) -> dict[str, Any]:
        """The message in the form that a model got; image parts name the picture in the source."""
        raw, ids = self.raw, [each.get("id") for each in tool_calls_of(self.raw)]
        calls = [
            {"id": name, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call, name in zip_longest(self.calls, ids[: len(self.calls)])
        ]
        message = {"role": str(raw.get("role", self.role)), "content": [*self.parts] or [text_part(self.text)]}
        answered = {"tool_call_id": raw["tool_call_id"]} if isinstance(raw.get("tool_call_id"), str) else {}
        return message | answered | ({"tool_calls": calls} if calls else {})

    @property
    def is_masked(self) -> bool:
        """Whether a trainer would not learn from it."""
        return self.raw.get("weight") == 0 or self.raw.get("loss") is False or self.raw.get("train") is False

    @property
    def is_example(self) -> bool:
        """Whether the log marks the reply as part of the prompt."""
        return self.raw.get("source") == "input"


def calls_of(message: Mapping[str, Any], content: Any) -> list[Call]:
    """Return the calls of a message of OpenAI's or Anthropic's API: tool_calls, function_call, or blocks tool_use.

    Raises:
        UnreadableError: ``tool_calls`` is not a list.
    """
    calls: list[Call] = []
    for each in tool_calls_of(message):
        function = each.get("function")
        whole = function if isinstance(function, dict) else each
        calls.append(call_of(whole.get("name", function), whole.get("arguments")))
    if isinstance(old := message.get("function_call"), dict):
        calls.append(call_of(old.get("name"), old.get("arguments")))
    blocks = content if isinstance(content, list) else []
    used = [each for each in blocks if isinstance(each, dict) and each.get("type") == "tool_use"]
    return calls + [call_of(each.get("name"), each.get("input")) for each in used]


def message_of(raw: Mapping[str, Any], images: list[str], role: str = "", **facts: Any) -> Message:
    """Return a message of OpenAI's or Anthropic's API, read in another ``role`` if there is one.

    Its pictures are those of its parts, and one of ``images`` per tag. The thought of a reply is in front of its text.

    Raises:
        UnreadableError: the content is neither a text nor a list of parts, or there are fewer images than tags.
    """
    content, role, parts = raw.get("content"), role or str(raw.get("role")), list[dict[str, Any]]()
    text = _text_of(content, images, parts)
    pictures = [part["image"] for part in parts if part.get("image")]
    if raw.get("role") == "assistant":
        said = with_thought(raw, text)
        text, parts = said if role == "assistant" else text, [text_part(said)]
    return Message(role, text, pictures, facts, calls_of(raw, content), raw, parts)


def text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a message."""
    return {"type": "text", "text": text}


def _text_of(content: Any, images: list[str], shown: list[dict[str, Any]]) -> str:
    """Return the text of a content without thoughts, and add its texts and pictures to ``shown``, in their order.

    Raises:
        UnreadableError: see :func:`message_of`.
    """
    parts = [text_part(content)] if isinstance(content, str) else [] if content is None else content
    if not isinstance(parts, list) or not all(isinstance(part, dict | str) for part in parts):
        raise UnreadableError(f"found a content of type {type(content).__name__}, expected a text or a list of parts")
    texts = list[str]()
    for part in (each if isinstance(each, dict) else text_part(each) for each in parts):
        if part.get("type") == "tool_result":
            texts.append(_text_of(part.get("content"), images, shown))
            continue
        text = None if is_thought(part) else part.get("text")
        if isinstance(text, str):
            texts.append(text)
            first, *others = text.split("<image>")
            shown += [text_part(first)] if first else []
            for other in others:
                if not images:
                    raise UnreadableError("found more <image> tags than images")
                shown.append({"type": "image", "image": images.pop(0)})
                shown += [text_part(other)] if other else []
        source = part.get("image_url", part.get("image", part.get("source") if part.get("type") == "image" else None))
        url = _url_of(source) if isinstance(source, dict) else source
        if not isinstance(url, str):
            url = (images.pop(0) if images else "") if part.get("type") == "image" else None
        shown += [] if url is None else [{"type": "image", "image": url}]
    return "\n".join(texts)


def _url_of(source: Mapping[str, Any]) -> Any:
    """Return the address of a picture, or its data as a data URL."""
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return source.get("url")


def episode_of(messages: Sequence[Message], row: Mapping[str, Any], settings: ChatSettings) -> RecordedEpisode:
    """Return the episode of a chat; ``row`` has the fields of the record.

    Raises:
        UnreadableError: it has no reply.
        LeftOutError: the environment is unknown.
        pydantic.ValidationError: a field does not fit the format of episodes.
    """
    env = row.get("env") or settings.env
    if not env:
        raise LeftOutError(LeftOut.ENVIRONMENT, "the record names no environment; name it with --option env=sokoban")
    kind = _environment(str(env))
    config = row.get("env_config") or {}
    long = "actions_per_turn" in kind.config_type.model_fields
    most = config.get("actions_per_turn", 1) if long and isinstance(config, dict) else 1
    most = most if isinstance(most, int) else 1
    turns: list[dict[str, Any]] = []
    readings: list[tuple[Read, Sequence[Call], Sequence[dict[str, Any]]]] = []
    observation, frame, masked, replied, replies = "", None, 0, False, 0
    sent = [message.sent for message in messages]
    for index, message in enumerate(messages):
        if message.role == "assistant":
            masked += message.is_masked
            name = message.raw.get("name")
            other = bool(settings.agent) and isinstance(name, str) and name != settings.agent
            replies += 1
            example = message.is_example or replies <= (settings.examples or 0)
            if other or example or (message.is_masked and settings.masked == "skipped"):
                observation, frame = "", None
                continue
            actions, reading = actions_of(kind, message, settings, most)
            if replied and reading.actions:
                reading = replace(reading, dropped=(*reading.dropped, "a second reply without an observation between"))
            said = {"response": message.text, "actions": actions, **message.facts}
            turns.append({"frame": frame, "observation": observation or None, **said})
            readings.append((reading, message.calls, sent[:index]))
            observation, frame, replied = "", None, True
        elif message.role != "system":
            observation = f"{observation}\n{message.text}".strip()
            frame = message.images[-1] if message.images else frame
            replied = False
    if not turns:
        raise UnreadableError("found no assistant message")
    recorded = {name: value for name, value in row.items() if name in _OF_EPISODE}
    if type(recorded.get("id")) is int:
        recorded["id"] = str(recorded["id"])
    other_fields = {name: value for name, value in row.items() if name not in RecordedEpisode.model_fields}
    fixed = {"env": env, "actions_per_turn": settings.actions_per_turn, "turns": turns}
    fixed |= {"final_frame": frame, "final_observation": observation or None}
    if settings.actions_per_turn > 1 and long:
        fixed["env_config"] = (
            {"actions_per_turn": settings.actions_per_turn, **config} if isinstance(config, dict) else config
        )
    episode = RecordedEpisode.model_validate({**other_fields, **recorded, **fixed})
    agents = {message.raw.get("name") for message in messages if message.role == "assistant"} - {None}
    prompt = "\n".join(each.text for each in takewhile(lambda message: message.role != "assistant", messages))
    limit = 0 if isinstance(config, dict) and "actions_per_turn" in config else stated_limit(prompt)
    episode.note_chat(ChatFacts(masked, tuple(sorted(map(str, agents))), settings.trailing, limit))
    for turn, (reading, calls, prompt) in zip(episode.turns, readings, strict=True):
        turn.prompt = prompt
        turn.read_as(reading, calls)
    return episode


def read_replies(episode: RecordedEpisode, settings: ChatSettings) -> None:
    """Read the replies of an episode whose turns list no actions.

    Raises:
        LeftOutError: the environment is unknown.
    """
    kind = _environment(episode.env)
    del episode.turns[: min(settings.examples or 0, len(episode.turns) - 1)]
    unread = [turn for turn in episode.turns if turn.actions is None and turn.response is not None]
    most = episode.env_config.get("actions_per_turn", 0)
    if "actions_per_turn" not in kind.config_type.model_fields:
        episode.actions_per_turn = max(episode.actions_per_turn, settings.actions_per_turn)
    elif settings.actions_per_turn > 1 and not most:
        episode.env_config = {**episode.env_config, "actions_per_turn": settings.actions_per_turn}
    for turn in unread:
        message = Message("assistant", turn.response or "")
        actions, reading = actions_of(kind, message, settings, most if isinstance(most, int) else 0)
        turn.actions = None if actions is None else [*actions]
        turn.read_as(reading)
    for turn in episode.turns:
        pictures = [] if turn.frame is None else [turn.frame]
        turn.prompt = [message_of(each, [*pictures]).sent for each in turn.messages or ()]
    limit = 0 if most else stated_limit(episode.turns[0].observation or "")
    episode.note_chat(ChatFacts(trailing=settings.trailing, limit=limit))


def _environment(env: str) -> type[PivotEnv]:
    try:
        return plugins.load("environments", env)
    except PluginError as error:
        raise LeftOutError(LeftOut.ENVIRONMENT, str(error)) from error


def actions_of(
    kind: type[PivotEnv], message: Message, settings: ChatSettings, most: int
) -> tuple[list[str] | None, Read]:
    """Return the actions of a reply (None to read it by the environment's grammar), and how it was read."""
    if not kind.actions:
        return _other_actions(kind, message, settings)
    names, tag = kind.actions, kind.profile.answer_tag
    reading = read_reply(names, tag, settings, message.text, message.calls, most)
    reading = replace(reading, dropped=(*reading.dropped, *_fields_that_act(message.raw, names, settings, reading)))
    return (None if settings.is_plain and not message.calls else list(reading.actions)), reading


_NO_ACTIONS = frozenset({"role", "content", "name", "tool_calls", "function_call", "id", "source", "model", "type"})


def _fields_that_act(
    raw: Mapping[str, Any], names: Sequence[str], settings: ChatSettings, reading: Read
) -> Iterator[str]:
    """Yield other fields of a message that contain actions which were not read."""
    for name, value in raw.items():
        if name not in _NO_ACTIONS and isinstance(value, str) and len(value) < 200:
            actions = lenient(value, names, settings)
            if actions and actions != list(reading.actions):
                yield f"{name}={value}"


def _other_actions(kind: type[PivotEnv], message: Message, settings: ChatSettings) -> tuple[list[str] | None, Read]:
    """Return the actions of a reply, and how it was read, where the class lists no names: any other text is dropped."""
    keeps_case, others = kind.profile.keeps_case, list[str]()
    if message.calls:
        values = [list(call.arguments.values()) for call in message.calls]
        chosen = [
            call.arguments.get(settings.argument) if settings.argument else each[0] if len(each) == 1 else None
            for call, each in zip(message.calls, values, strict=True)
        ]
        texts = [part for each in chosen for part in (each if isinstance(each, list) else [each])]
        contents = [text for text in texts if isinstance(text, str)]
    else:
        contents = contents_of(message.text, settings, kind.profile.answer_tag, keeps_case=keeps_case)
        contents, others = contents[:1], [] if settings.container else contents[1:]
    is_plain, most = settings.is_plain and not message.calls, settings.actions_per_turn
    words = [word for content in contents for word in ([content] if keeps_case else words_of(content, settings))]
    actions = words if keeps_case else [settings.vocabulary.get(word, word) for word in words]
    dropped = (*(each[:80] for each in (*actions[most:], *others)),)
    reading = Read(tuple(actions[:most]), dropped, message.text.strip()[:200] or "blank")
    return None if is_plain else actions[:most], reading
