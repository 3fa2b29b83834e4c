"""The licence of a dataset: derived from the sources of its rows, or stated by its publisher.

Rows that the pipeline generates by itself have the pipeline's own licence. Everything else has an owner: an environment
lists the levels and pictures that others made (:class:`~pivot.environments.base.Source`), and the text of a model
belongs under the model's terms. A licence that nobody stated is *unknown*, never assumed; ``--license`` states it.
"""

from dataclasses import dataclass

from ...environments.base import Source
from ..store.config import PartConfig
from ..store.run import Run

OWN = "apache-2.0"
"""Licence of generated data."""
UNKNOWN, SEVERAL = "unknown", "other"
"""Hugging Face's words for data whose terms are not known, and for terms of several kinds."""
PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc0-1.0"})
"""Licences of sources that may be combined with data under our own licence, as long as they are named."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The licence of a dataset and its sources."""

    licence: str
    """An id of the Hugging Face hub."""
    stated: bool
    """Whether a person stated it."""
    sources: tuple[tuple[str, Source], ...]
    """Sources that the pipeline did not generate: their place in the dataset, and their description."""

    @property
    def open_questions(self) -> bool:
        """Whether the terms of a source are unknown."""
        return any(source.licence is None for _, source in self.sources)


def terms_of(run: Run) -> Terms:
    """Return the terms of the dataset of a run."""
    sources = [(name, source) for name, env in run.envs.items() for source in env.config.sources]
    if not run.policy().is_stand_in:
        sources.append(("replies", _written("replies", run.config.policy)))
    if not run.writer().is_stand_in:
        sources.append(("guidance", _written("guidance, and with it the answers to learn", run.config.teacher)))
    licences = {source.licence for _, source in sources}
    derived = UNKNOWN if None in licences else OWN if licences <= PERMISSIVE else SEVERAL
    return Terms(run.config.license or derived, bool(run.config.license), tuple(sources))


def _written(what: str, part: PartConfig) -> Source:
    model = part.options.get("model")
    by = f"the model `{model}`" if model else f"`{part.name}`"
    return Source(f"{what} written by {by}, under its terms of use", None)
