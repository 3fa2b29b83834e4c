"""Modules and models that a store names are loaded only where the user allows them in this call.

A call allows names: of modules with everything below them, or of models. They hold in this process until the call ends,
and travel with its orders to worker processes. What is about to import or load something that is not part of PIVOT
calls :func:`require` first.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from .errors import NotAllowedError

Names = str | Iterable[str]
"""One name, or several."""
Code = Mapping[str, str]
"""Names of modules and models, each with the setting that has it, such as ``gym.package``."""

_LOCK = threading.Lock()
_ALLOWED: Counter[str] = Counter()
_CALL: ContextVar[ExitStack | None] = ContextVar("call", default=None)
_STORES: OrderedDict[str, str] = OrderedDict()
"""The file that named a module or model, by its name; for messages."""
MOST_STORES = 256


@contextmanager
def allowing(names: Names) -> Iterator[None]:
    """Allow names until the end of the block, in all threads of this process."""
    names = (names,) if isinstance(names, str) else tuple(names)
    with _LOCK:
        _ALLOWED.update(names)
    try:
        yield
    finally:
        with _LOCK:
            _ALLOWED.subtract(names)


@contextmanager
def one_call(names: Names) -> Iterator[None]:
    """Allow names during a call, with all names that :func:`allow_code` adds meanwhile."""
    with ExitStack() as stack:
        stack.enter_context(allowing(names))
        before = _CALL.set(stack)
        try:
            yield
        finally:
            _CALL.reset(before)


def allow_code(*names: str) -> None:
    """Allow modules, each with everything below it, or models, until this process ends.

    For scripts that make environments of other packages themselves; functions that open a store have ``allow=``.

    Args:
        *names: names of modules and models.

    Raises:
        Nothing: a name that does not exist is found when it is loaded.
    """
    call = _CALL.get()
    if call is not None:
        call.enter_context(allowing(names))
    else:
        with _LOCK:
            _ALLOWED.update(names)


def allowed_names() -> tuple[str, ...]:
    """Return the allowed names, to send them to another process."""
    with _LOCK:
        return tuple(sorted(name for name, count in _ALLOWED.items() if count > 0))


def missing(code: Code) -> dict[str, str]:
    """Return the names that are not allowed, each with its setting."""
    allowed = allowed_names()
    return {
        name: setting
        for name, setting in code.items()
        if not any(name == each or name.startswith(f"{each}.") for each in allowed)
    }


def require(code: Code) -> None:
    """Refuse what this call does not allow.

    Raises:
        NotAllowedError: a name is not allowed; the message says which option allows all of them.
    """
    if refused := missing(code):
        raise NotAllowedError(refusal(refused))


def note_store(names: Iterable[str], file: str) -> None:
    """Remember for messages that a ``run.json`` or config file has these names."""
    with _LOCK:
        for name in names:
            _STORES.pop(name, None)
            _STORES[name] = file
        while len(_STORES) > MOST_STORES:
            _STORES.popitem(last=False)


def refusal(refused: Code) -> str:
    """Return the message about names that are not allowed."""
    name, setting = next(iter(refused.items()))
    where = f"{_STORES[name]}: " if name in _STORES else ""
    options = " ".join(f"--allow {each}" for each in refused)
    return (
        f"{where}{setting} names {name!r}, which would be loaded and may run any code; look at it, then allow it with "
        f"{options} (in Python: allow={[*refused]})"
    )
