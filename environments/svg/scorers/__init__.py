"""Scorers of SVG reconstructions by name; a scorer measures the similarity of two pictures.

Name and version of the scorer are part of the environment's settings, and therefore of every row and id, because scores
of different scorers are not comparable. A store has one setting per environment, so its tables never mix scorers.
"""

import threading
from collections.abc import Mapping
from functools import lru_cache

from ....core.errors import ConfigError
from .base import Score, Scorer
from .perceptual import PerceptualScorer
from .pixel import PixelScorer

SCORERS: Mapping[str, type[Scorer]] = {kind.name: kind for kind in (PixelScorer, PerceptualScorer)}
"""Scorers by name."""
_LOADING = threading.Lock()


def scorer_version(name: str) -> str:
    """Return the version of a scorer without loading any model.

    Raises:
        ConfigError: the scorer is unknown.
    """
    if name not in SCORERS:
        raise ConfigError(f"unknown scorer {name!r}; known: {', '.join(SCORERS)}")
    return SCORERS[name].version


def load_scorer(name: str, options: tuple[tuple[str, str], ...] = ()) -> Scorer:
    """Return this process's scorer with these options; it loads its models at the first score.

    Raises:
        ConfigError: the scorer is unknown.
    """
    scorer_version(name)
    with _LOADING:
        return _scorer(name, options)


@lru_cache(maxsize=4)
def _scorer(name: str, options: tuple[tuple[str, str], ...]) -> Scorer:
    return SCORERS[name](**dict(options))


__all__ = ["SCORERS", "Score", "Scorer", "load_scorer", "scorer_version"]
