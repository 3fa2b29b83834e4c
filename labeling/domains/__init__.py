"""The language about each environment: one file each, found by name."""

from ... import plugins
from .base import GENERAL_MEANINGS, Domain
from .phrases import Facts

_GENERAL = Domain()


def domain_of(env: str) -> Domain:
    """Return the domain of an environment; the general one where nobody wrote one.

    Raises:
        PluginError: there is one, but it cannot be used.
    """
    return plugins.load("domains", env) if env in plugins.names("domains") else _GENERAL


__all__ = ["GENERAL_MEANINGS", "Domain", "Facts", "domain_of"]
