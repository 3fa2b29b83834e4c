"""The language about each environment: one file each, found by name."""

from .base import GENERAL_MEANINGS, Domain, Failure, domain_of

__all__ = ["GENERAL_MEANINGS", "Domain", "Failure", "domain_of"]
