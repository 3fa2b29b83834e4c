"""Exceptions: one type per boundary at which bad input can enter.

Every message says what was found, what was expected, and what to do next; the command line prints it as one line and
exits with its ``status``. Nothing below catches these to hide them: a bad *rollout* never raises, it becomes a row with
a typed reason.
"""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, ClassVar

INTERRUPTED = 130
"""Exit status of the command line after Ctrl-C, by the convention of shells."""


SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "pwd", "signature", "sig", "code", "auth", "credential")
"""Final words of query parameters that hold credentials, such as ``api-key``."""
_LOGIN = re.compile(
    r"(?<=://)(?:[^/\s'\"<>]+|[^/\s@:'\"<>]*:(?!\d+/)[^\s'\"<>]*)@"  # a password may hold a slash, or an @
    r"|(?<!\w)[\w.-]+:[^\s@/'\"<>]+@(?=[\w.-]+:\d)"
)
_QUERY = re.compile(rf"(?<=[?&;])([\w.-]*(?:{'|'.join(SECRET_WORDS)}))=[^&\s'\"<>]+", re.IGNORECASE)
_KEY = re.compile(
    r"\b(?:(sk-|csk-|gsk_|hf_|gh[pos]_|glpat-|xai-|nvapi-|pplx-|AKIA|AIza)[A-Za-z0-9_-]{16,}"
    r"|((?:Bearer|Basic) )[\w.+/=-]{16,})"
)
"""Keys by the beginnings that well-known services give them."""


def masked(text: str) -> str:
    """Return a text without the logins and keys in its addresses, and without what is written like a key."""
    text = _QUERY.sub(r"\1=***", _LOGIN.sub("***@", text))
    return _KEY.sub(r"\1\2***", text)


class PivotError(Exception):
    """Base of every error that PIVOT raises on purpose; its message never shows a login or a key."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(masked(each) if isinstance(each, str) else each for each in arguments))

    status: ClassVar[int] = 1
    """Exit status of the command line."""


class ConfigError(PivotError):
    """A setting, command-line value or config file that cannot be used."""

    status: ClassVar[int] = 2


class PluginError(PivotError):
    """An environment, solver, policy, teacher, prompt or filter that is unknown or fails to import."""

    status: ClassVar[int] = 2


class NotAllowedError(PivotError):
    """A module or model that a store or config names, and that this call does not allow to be loaded."""

    status: ClassVar[int] = 2


class LevelError(PivotError):
    """A level text that is not a well-formed state of its environment."""


class GenerationError(PivotError):
    """No level with the asked-for properties was found within the bounded number of tries."""


class CertifyError(PivotError):
    """An episode that cannot be certified: actions that do not fit the level, or an episode that succeeded."""


class SimulatorError(PivotError):
    """A simulator in a separate process that does not start, hangs, dies, or returns an impossible answer."""


class EngineError(PivotError):
    """The flow engine of a run does not start, ends early, or cannot write its records."""


class PolicyError(PivotError):
    """A policy or teacher that could not answer at all."""

    def __init__(self, message: str, call: Mapping[str, Any] | None = None) -> None:
        """Take the message, and in ``call`` the fields for the table ``calls``, such as the number of attempts."""
        super().__init__(message)
        self.call: Mapping[str, Any] = call or {}


class BrokenOffError(PolicyError):
    """An answer that neither the model nor the token limit ended: an abort, a content filter, a tool call."""


class ServerGoneError(PivotError):
    """A model server that no longer answers: the run stops, finished work is kept, and a later run can resume."""


class StoreError(PivotError):
    """A store that is missing, torn, locked, inconsistent with its config, or cannot be written."""


class NoStoreError(StoreError):
    """A store that the command cannot use: missing, unfinished, of another config, or without the requested part."""

    status: ClassVar[int] = 2


class HubError(PivotError):
    """The Hugging Face hub refused a request or cannot be reached."""


class CacheError(StoreError):
    """A call cache that cannot be read or written: the run stops, because paid answers would be lost."""


class ReadOnlyError(StoreError):
    """A store that this process may not write; it can still be read."""


class ForbiddenError(StoreError):
    """A file or folder that this process may not read."""


class ImageError(PivotError):
    """Bytes that are not a readable picture, or an array that is not an RGB frame."""


class TrainingError(PivotError):
    """Data, a model, a setting or a loss that cannot be trained with or evaluated."""

    status: ClassVar[int] = 2


def printable(text: str) -> str:
    """Return a masked text whose control characters are escaped: line ends, terminal sequences, marks of direction."""
    text = masked(text)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
