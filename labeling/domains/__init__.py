"""The language about each environment: one file each, found by name."""

from ...core import plugins
from ...environments.base import EnvProfile
from ...solvers.base import Verdict
from ..action_log import FLOAT_DECIMALS
from ..episode import FailedEpisode
from ..statements import Offer
from .base import GENERAL_MEANINGS, Domain, Failure

_GENERAL = Domain()


def domain_of(env: str) -> Domain:
    """Return the domain of an environment; the general one if no domain is registered under its name.

    Raises:
        PluginError: the registered domain cannot be used.
    """
    return plugins.load("domains", env) if env in plugins.names("domains") else _GENERAL


def offer_of(profile: EnvProfile, episode: FailedEpisode, verdict: Verdict, decimals: int = FLOAT_DECIMALS) -> Offer:
    """Return what guidance may say about a certified failure; ``decimals`` are those of its log."""
    return domain_of(episode.env).offer(Failure(profile, episode, verdict, decimals))


__all__ = ["GENERAL_MEANINGS", "Domain", "Failure", "domain_of", "offer_of"]
