"""Messages of errors, with a remedy for Python and one for the settings of ``gym``."""

import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, ClassVar, cast

from ...core.errors import CertifyError, PivotError

_SETTING = re.compile(r"\bgym\.(?=(key|success|clock|how|drawing|illegal|actions)\b)")
IF_RANDOM = "if it is random, see docs/tutorials/your-environment.md#a-random-environment"


class AdvisedError(CertifyError):
    """An error whose remedy names settings of ``gym``, which are arguments in Python."""

    is_kept: ClassVar[bool] = False
    """Whether the error keeps its type when its remedy names settings."""

    def __init__(self, in_settings: str) -> None:
        """Keep the message with names of settings, and make one with names of arguments."""
        super().__init__(_SETTING.sub("", in_settings))
        self.in_settings = in_settings


class ContradictionError(AdvisedError):
    """Two paths to one state gave different states; another way to restore states may avoid this."""


class IllegalActionError(ContradictionError):
    """A step raised: the environment does not allow the action."""

    def __init__(self, finding: str) -> None:
        """Add to the finding what to do."""
        self.finding = finding
        super().__init__(
            f"{finding}; expected an answer to every action in every state; if it is illegal there, exclude it in "
            "info['action_mask'], or let it count as a turn without an action with gym.illegal=invalid; else leave it "
            "out of gym.actions, or repair the environment"
        )


class ClockError(AdvisedError):
    """More than rewards depends on a clock that was held still."""


@contextmanager
def naming_settings(where: str = "") -> Iterator[None]:
    """Let errors name settings in place of Python arguments, after the words ``where``."""
    try:
        yield
    except AdvisedError as error:
        named = (type(error) if error.is_kept else CertifyError)(where + error.in_settings)
        named.args = (where + error.in_settings,)
        raise named from error


def raised(error: BaseException) -> str:
    """Return an error of the environment for a message, on one line."""
    if isinstance(error, SystemExit):
        return f"called sys.exit({'' if error.code is None else repr(error.code)})"
    return " ".join(f"raised {type(error).__name__}: {error}".split())[:300]


@contextmanager
def naming_code() -> Iterator[None]:
    """Add the raising method's name to errors of the environment or of a user's function.

    Errors raised by PIVOT itself stay as they are.
    """
    try:
        yield
    except PivotError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        frame = [each for each, _ in walk_tb(error.__traceback__)][-1]
        code = frame.f_code
        if str(frame.f_globals.get("__name__")).startswith("pivot."):
            raise
        raise CertifyError(
            f"{code.co_qualname} ({code.co_filename}, line {code.co_firstlineno}) {raised(error)}; expected an "
            "environment and functions that raise nothing; repair it there; if a wrapper uses the environment before "
            "its first reset with a seed, call reset(seed=0) in the function that makes it"
        ) from error


def plain(value: Any) -> Any:
    """Return actions as numbers, lists and tuples, to compare and to show."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list):
        return [plain(each) for each in cast(list[Any], value)]
    return tuple(plain(each) for each in cast(tuple[Any, ...], value)) if isinstance(value, tuple) else value


def short(value: object) -> str:
    """Return a value for a message, at most 80 characters."""
    text = " ".join(repr(value).split())
    return f"{text[:80]}…" if len(text) > 80 else text


def difference(one: Hashable, other: Hashable, path: str = "") -> str:
    """Return the first place where two keys differ, and both values there, shortened; empty for equal keys."""
    if one == other:
        return ""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):  # pyright: ignore[reportUnknownArgumentType]
        pairs = list(zip(one, other, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if len(pairs) in (2, 3) and isinstance(one[0], str) and one[0] == other[0]:
            name = "" if one[0].startswith("<") else f".{one[0]}"
            return next(difference(left, right, path + name) for left, right in pairs[1:] if left != right)
        for place, (left, right) in enumerate(pairs):
            named = isinstance(left, tuple) and len(left) == 2 and isinstance(left[0], str)  # pyright: ignore[reportUnknownArgumentType]
            if left != right:
                return difference(left, right, path if named else f"{path}[{place}]")
    left, right = (text if len(text := repr(each)) < 60 else f"{text[:60]}…" for each in (one, other))
    return f"{path.removeprefix('.') or 'the key'}: {left} and {right}"
