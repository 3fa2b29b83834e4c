"""Scorers of SVG reconstructions by name; a scorer measures the similarity of two pictures.

Name and version of the scorer are part of the environment's settings, and therefore of every row and id, because scores
of different scorers are not comparable. A store has one setting per environment, so its tables never mix scorers.
"""

import threading
from functools import lru_cache

from ....core.errors import ConfigError
from .base import Score, Scorer
from .pixel import PixelScorer

SCORERS = ("pixel", "dino+dreamsim")
"""Names of the scorers."""


def scorer_version(name: str) -> str:
    """Return the version of a scorer without loading any model.

    Raises:
        ConfigError: the scorer is unknown.
    """
    if name == PixelScorer.name:
        return PixelScorer.version
    if name == "dino+dreamsim":
        from .perceptual import PerceptualScorer  # noqa: PLC0415

        return PerceptualScorer.version
    raise ConfigError(f"unknown scorer {name!r}; known: {', '.join(SCORERS)}")


def load_scorer(name: str, options: tuple[tuple[str, str], ...] = ()) -> Scorer:
    """Return this process's scorer with these options; it loads its models at the first score.

    Raises:
        ConfigError: the scorer is unknown.
    """
    with _LOADING:
        return _scorer(name, options)


_LOADING = threading.Lock()


@lru_cache(maxsize=4)
def _scorer(name: str, options: tuple[tuple[str, str], ...]) -> Scorer:
    if name == PixelScorer.name:
        return PixelScorer()
    if name == "dino+dreamsim":
        from .perceptual import PerceptualScorer  # noqa: PLC0415

        return PerceptualScorer(**dict(options))
    raise ConfigError(f"unknown scorer {name!r}; known: {', '.join(SCORERS)}")


__all__ = ["SCORERS", "Score", "Scorer", "load_scorer", "scorer_version"]
