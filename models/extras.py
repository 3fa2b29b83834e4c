"""Optional packages: import one when it is needed, or say with which line to install it.

The base install pulls neither PyTorch nor a client of a model server. A module that needs one imports it through
:func:`need` when it is used, so that naming the policy or the teacher costs nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..errors import PluginError


def install_line(extra: str) -> str:
    """Return the command that installs one extra of PIVOT."""
    return f"pip install 'pivot-vlm[{extra}]'"


def installed(module: str) -> bool:
    """Whether a module is there, without importing it."""
    return find_spec(module) is not None


def look_for(module: str, extra: str) -> None:
    """See whether ``module`` is installed, without importing it: PyTorch takes seconds.

    Raises:
        PluginError: it is not; the message holds the install line.
    """
    if not installed(module):
        raise PluginError(f"package {module!r} is not installed; get it with: {install_line(extra)}")


def need(module: str, extra: str) -> Any:
    """Import and return ``module``, which the extra ``extra`` brings.

    Raises:
        PluginError: it is not installed, or it fails to import; the message holds the install line.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise PluginError(f"package {missing!r} is not installed; get it with: {install_line(extra)}") from error
    except Exception as error:
        raise PluginError(
            f"package {module!r} fails to import ({type(error).__name__}: {error}); mend it with: {install_line(extra)}"
        ) from error
