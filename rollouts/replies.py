"""Replies that name a given action, written in the reply grammar of an environment; the inverse of the parser."""

from collections.abc import Callable

from ..core.errors import ConfigError
from ..core.messages import THINK_TAGS
from ..environments.base import ParsedAction
from ..solvers.base import TURN_SEPARATOR


def action_text(action: str, parse_action: Callable[[str], ParsedAction | None]) -> str:
    """Return the text inside the answer tag that names an action: the action, or its parts separated by commas.

    Args:
        action: normalised name, as logged, such as ``up`` or ``up|left``.
        parse_action: the environment's grammar.

    Raises:
        ConfigError: the grammar reads neither as this action.
    """
    for text in (action, action.replace(TURN_SEPARATOR, ", ")):
        parsed = parse_action(text)
        if parsed is not None and parsed.name == action:
            return text
    raise ConfigError(f"found action {action!r}, expected one that the environment's reply grammar can name")


def written_reply(thought: str, text: str, tag: str) -> str:
    """Return a whole reply: a think block, then the text of an action in the answer tag."""
    return f"<{THINK_TAGS[0]}>{thought}</{THINK_TAGS[0]}><{tag}>{text}</{tag}>"
