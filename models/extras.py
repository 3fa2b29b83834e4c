"""Optional packages, imported on demand; errors contain the command that installs them.

The base install has neither PyTorch nor a client of a model server. A module that needs one imports it through
:func:`need` at its first use, so that naming a policy or a teacher costs nothing.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from ..core.errors import PluginError


def install_line(extra: str) -> str:
    """Return the command that installs one extra of PIVOT."""
    return f"pip install 'pivot-vlm[{extra}]'"


def installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return find_spec(module) is not None


def version_of(package: str) -> str:
    """Return the version of a package, or ``not installed``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def look_for(module: str, extra: str) -> None:
    """Check that ``module`` is installed, without importing it: PyTorch takes seconds.

    Raises:
        PluginError: the module is missing; the message holds the install command.
    """
    if not installed(module):
        raise PluginError(f"package {module!r} is not installed; get it with: {install_line(extra)}")


def need(module: str, extra: str) -> Any:
    """Import and return ``module``, which belongs to the extra ``extra``.

    Raises:
        PluginError: it is not installed, or it fails to import; the message holds the install command.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise PluginError(f"package {missing!r} is not installed; get it with: {install_line(extra)}") from error
    except Exception as error:
        raise PluginError(
            f"package {module!r} fails to import ({type(error).__name__}: {error}); fix it with: {install_line(extra)}"
        ) from error
