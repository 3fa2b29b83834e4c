"""How alike two pictures are: scorers of SVG reconstructions, found by name.

A scorer has a name and a version, which are part of every environment setting and so of every row and id: scores of
different scorers are different quantities, and :func:`same_scorer` refuses to put them into one table.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ...errors import ConfigError
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


@lru_cache(maxsize=4)
def load_scorer(name: str, options: tuple[tuple[str, str], ...] = ()) -> Scorer:
    """Return the scorer of this process with these options; its models are loaded at the first score.

    Raises:
        ConfigError: there is no such scorer.
    """
    if name == PixelScorer.name:
        return PixelScorer()
    if name == "dino+dreamsim":
        from .perceptual import PerceptualScorer  # noqa: PLC0415

        return PerceptualScorer(**dict(options))
    raise ConfigError(f"unknown scorer {name!r}; known: {', '.join(SCORERS)}")


def same_scorer(env_configs: Iterable[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return name and version of the scorer that all these stored settings share; None when there are none.

    Raises:
        ConfigError: the settings have scorers whose scores cannot be compared.
    """
    scorers = {(str(config.get("scorer")), str(config.get("scorer_version"))) for config in env_configs}
    if len(scorers) > 1:
        found = ", ".join(f"{name} {version}" for name, version in sorted(scorers))
        raise ConfigError(f"scores of different scorers are not comparable: found {found}; keep one store for each")
    return next(iter(scorers), None)


__all__ = ["SCORERS", "Score", "Scorer", "load_scorer", "same_scorer", "scorer_version"]
