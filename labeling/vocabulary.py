"""The words that a target may use for a failure mode: the certificate's own, or those of the paper.

Where every turn submits a whole result, the paper asks its Analyzer for ``timeout`` or ``deadlock`` and answers
``timeout`` throughout. Labels always keep the certificate's mode; the vocabulary only decides what the exported target,
the prompt's list of modes and the dataset's completion say.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..environments.base import EnvConfig, EnvProfile
from .domains import domain_of
from .episode import Vocabulary

PAPER_MODES = ("timeout", "deadlock")


def profile_under(profile: EnvProfile, settings: EnvConfig | Mapping[str, Any]) -> EnvProfile:
    """Return the profile of an environment with the failure modes that its settings add, in ``failure_modes``."""
    values = settings if isinstance(settings, Mapping) else vars(settings)
    added = values.get("failure_modes")
    if not isinstance(added, Mapping) or not added:
        return profile
    return replace(profile, failure_modes=(*profile.failure_modes, *map(str, cast(Mapping[str, Any], added))))


def is_translated(env: str, vocabulary: Vocabulary) -> bool:
    """Whether targets of an environment use other words than its labels."""
    return vocabulary == "paper" and bool(domain_of(env).paper_modes)


def target_mode(env: str, mode: str, vocabulary: Vocabulary) -> str:
    """Return the word for ``mode`` in a target; a mode without a word of the paper's stays as it is."""
    return domain_of(env).paper_modes.get(mode, mode) if vocabulary == "paper" else mode


def target_modes(profile: EnvProfile, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the closed list of modes that the Analyzer is given."""
    return PAPER_MODES if is_translated(profile.name, vocabulary) else profile.failure_modes
