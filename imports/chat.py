"""Episodes from chats: an assistant message is a turn, the picture before it is the last one since the turn before.

A chat says neither the environment nor how its replies are to be read, so the settings of its format do, unless the
record has fields of PIVOT's own format (``env``, ``env_config``, ``initial_state``, ``seed``, ``success`` and others).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from .. import plugins
from ..environments.base import NamedActions, ParsedAction, PivotEnv
from ..errors import PluginError
from ..plugins import Settings
from ..rollouts.parser import parse_reply
from ..rollouts.policies.imported import LeftOut
from .base import UnreadableError
from .episode import RecordedEpisode
from .levels import LeftOutError

_OF_EPISODE = set(RecordedEpisode.model_fields) - {"format", "turns", "final_frame", "final_state", "actions_per_turn"}


class ChatSettings(Settings):
    """Dialect of the chats of a source."""

    env: str = ""
    """Environment of the episodes, such as ``sokoban``, for records without a field ``env``."""
    tag: str = ""
    """Tag that encloses the actions in a reply, such as ``answer``; by default that of the environment."""
    separator: str = ""
    """Text between the actions of a reply, such as a comma; empty for one action per reply."""
    actions_per_turn: int = Field(default=1, ge=1, le=64)
    """Maximum number of actions of a reply; further ones did not run."""
    argument: str = ""
    """Argument of a tool call that holds the actions, such as ``direction``; by default a call has the name of an
    action, or its only argument is a text that holds them."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Mapping[str, Any]


def call_of(name: Any, arguments: Any) -> Call:
    """Return a call whose arguments are an object or its JSON; a text that is neither is the argument ``input``."""
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


def text_and_images(content: Any, images: list[str]) -> tuple[str, list[str]]:
    """Return the text of a message's content and its pictures: those of its parts, and one of ``images`` per tag.

    Raises:
        UnreadableError: the content is neither a text nor a list of parts, or there are fewer images than tags.
    """
    parts = [{"type": "text", "text": content}] if isinstance(content, str | None) else content
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise UnreadableError(f"found a content of type {type(content).__name__}, expected a text or a list of parts")
    texts, pictures = list[str](), list[str]()
    for part in parts:
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
            for _ in range(text.count("<image>")):
                if not images:
                    raise UnreadableError("found more <image> tags than images")
                pictures.append(images.pop(0))
        source = part.get("image_url", part.get("image", part.get("source") if part.get("type") == "image" else None))
        url = source.get("url", source.get("path")) if isinstance(source, dict) else source
        if isinstance(url, str):
            pictures.append(url)
        elif part.get("type") == "image" and images:
            pictures.append(images.pop(0))
    return "\n".join(texts), pictures


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
    turns: list[dict[str, Any]] = []
    observation, frame = "", None
    for message in messages:
        if message.role == "assistant":
            calls = message.calls
            actions = _called(str(env), calls, settings) if calls else _actions(str(env), message.text, settings)
            said = {"response": message.text, "actions": actions, **message.facts}
            turns.append({"frame": frame, "observation": observation or None, **said})
            observation, frame = "", None
        elif message.role != "system":
            observation = f"{observation}\n{message.text}".strip()
            frame = message.images[-1] if message.images else frame
    if not turns:
        raise UnreadableError("found no assistant message")
    recorded = {name: value for name, value in row.items() if name in _OF_EPISODE}
    if type(recorded.get("id")) is int:
        recorded["id"] = str(recorded["id"])
    other = {name: value for name, value in row.items() if name not in RecordedEpisode.model_fields}
    fixed = {"env": env, "actions_per_turn": settings.actions_per_turn, "turns": turns, "final_frame": frame}
    if settings.actions_per_turn > 1 and has_long_turns(str(env)):
        config = row.get("env_config") or {}
        fixed["env_config"] = (
            {"actions_per_turn": settings.actions_per_turn, **config} if isinstance(config, dict) else config
        )
    return RecordedEpisode.model_validate({**other, **recorded, **fixed})


def _environment(env: str) -> type[PivotEnv]:
    try:
        return plugins.load("environments", env)
    except PluginError as error:
        raise LeftOutError(LeftOut.ENVIRONMENT, str(error)) from error


def has_long_turns(env: str) -> bool:
    """Return whether an environment has turns of several actions as a setting.

    Raises:
        LeftOutError: the environment is unknown.
    """
    return "actions_per_turn" in _environment(env).config_type.model_fields


def _actions(env: str, reply: str, settings: ChatSettings) -> list[str] | None:
    """Return the actions of a reply in a dialect; None to read it by the grammar of the environment."""
    if not settings.tag and not settings.separator and settings.actions_per_turn == 1:
        return None
    kind = _environment(env)
    parsed = parse_reply(reply, settings.tag or kind.profile.answer_tag, ParsedAction)
    if parsed.action is None:
        return []
    return _words(kind, [parsed.action.name], settings)


def _called(env: str, calls: Sequence[Call], settings: ChatSettings) -> list[str]:
    """Return the actions of a reply that calls tools."""
    kind = _environment(env)
    names = kind.actions if issubclass(kind, NamedActions) else ()
    texts: list[str] = []
    for call in calls:
        values = list(call.arguments.values())
        if settings.argument:
            value = call.arguments.get(settings.argument)
        else:
            value = call.name if call.name.casefold() in names else values[0] if len(values) == 1 else None
        parts = value if isinstance(value, list) else [value]
        texts += [part.strip().casefold() if names else part for part in parts if isinstance(part, str)]
    return _words(kind, texts, settings)


def _words(kind: type[PivotEnv], texts: Sequence[str], settings: ChatSettings) -> list[str]:
    """Split texts at the separator, and return the actions before the first word that is not one."""
    cut = settings.separator
    words = [word.strip() for text in texts for word in (text.split(cut) if cut else [text])]
    if issubclass(kind, NamedActions):
        usable = [word in kind.actions for word in words]
        words = words[: usable.index(False)] if False in usable else words
    return words[: settings.actions_per_turn]
