"""How alike two pictures are: scorers of SVG reconstructions, found by name.

A scorer has a name and a version, which are part of the environment's settings and so of every row and id: scores of
different scorers are different quantities. A store has one setting for each environment and refuses a second one, so no
table of it mixes them.
"""

import threading
from functools import lru_cache

from ....errors import ConfigError
from .base import Score, Scorer
from .pixel import PixelScorer

SCORERS = ("pixel", "dino+dreamsim")
"""Names of the scorers."""


def scorer_version(name: str) -> str:
    """Return the version of a scorer without loading any model.

    Raises:
        ConfigError: there is no such scorer.
    """
    if name == PixelScorer.name:
        return PixelScorer.version
    if name == "dino+dreamsim":
        from .perceptual import PerceptualScorer  # noqa: PLC0415

        return PerceptualScorer.version
    raise ConfigError(f"unknown scorer {name!r}; known: {', '.join(SCORERS)}")


def load_scorer(name: str, options: tuple[tuple[str, str], ...] = ()) -> Scorer:
    """Return the one scorer of this process with these options; its models are loaded at the first score.

    Raises:
        ConfigError: there is no such scorer.
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
