"""The language about each environment: one file each, found by name."""

from ...core import plugins
from .base import GENERAL_MEANINGS, Domain, Failure

_GENERAL = Domain()


def domain_of(env: str) -> Domain:
    """Return the domain of an environment; the general one if no domain is registered under its name.

    Raises:
        PluginError: the registered domain cannot be used.
    """
    return plugins.load("domains", env) if env in plugins.names("domains") else _GENERAL


__all__ = ["GENERAL_MEANINGS", "Domain", "Failure", "domain_of"]
