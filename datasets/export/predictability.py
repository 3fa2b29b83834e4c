"""Accuracy of trivial predictors on a store's dataset: an Analyzer that looks at pictures has to exceed it.

Each is fitted on the training side of one environment and reads what the Analyzer's log shows, so a store with
``--log actions`` gives less away than one with the full log. Everything is read from the dataset's own rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..store.dataset_rows import dataset_file
from ..store.parquet import read_sparse
from ..store.schema import DATASET
from ..store.split import TRAIN, VALIDATION
from ..store.store import DATASET_FOLDER, Store
from .predictors import PREDICTORS, LoggedFailure, Predictor, accuracy

AT_MOST = 20_000
"""Records of a side that are read, the first ones: more move a share by tenths of a percent and fill the memory."""

_COLUMNS = ["env", "horizon", "actions", "action_log", "pivot_step", "failure_mode"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Accuracy of one predictor in one environment, 0 to 1; None if the split has no failures."""

    env: str
    predictor: str
    train: int
    """Number of failures that it was fitted on."""
    validation: int
    """Number of held-out failures."""
    pivot_train: float
    """Share of the failures that it was fitted on whose step it names."""
    pivot_validation: float | None
    mode_validation: float | None

    CELLS: ClassVar[tuple[str, ...]] = ("predictor", "pivot % train", "pivot % validation", "mode % validation")
    """Headings of the cells."""

    @property
    def cells(self) -> list[str]:
        """Cells of a table row, without the environment."""
        shares = (self.pivot_train, self.pivot_validation, self.mode_validation)
        return [self.predictor, *("–" if share is None else f"{100 * share:.1f}" for share in shares)]


def dataset_failures(store: Store, env: str, side: str, folder: str = DATASET_FOLDER) -> list[LoggedFailure]:
    """Read the first ``AT_MOST`` records of one environment on one side of the split, without their pictures.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    failures: list[LoggedFailure] = []
    for shard in store.config.shards():
        if shard.env == env and len(failures) < AT_MOST:
            name = dataset_file(folder, DATASET, shard, side)
            rows = read_sparse(store.storage, name, DATASET, _COLUMNS).slice(0, AT_MOST - len(failures)).to_pylist()
            failures += map(LoggedFailure.of_record, rows)
    return failures


def predictors_reach(store: Store, folder: str = DATASET_FOLDER) -> list[Reach]:
    """Return what every predictor reaches in every environment; one without training records has none.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    reached: list[Reach] = []
    for env in store.config.environments:
        train, validation = (dataset_failures(store, env, side, folder) for side in (TRAIN, VALIDATION))
        for name, fit in PREDICTORS.items() if train else ():
            predictor = fit(train)
            pivot = accuracy(predictor, validation) if validation else None
            mode = _right_modes(predictor, validation) if validation else None
            reached.append(Reach(env, name, len(train), len(validation), accuracy(predictor, train), pivot, mode))
    return reached


def _right_modes(predictor: Predictor, failures: Sequence[LoggedFailure]) -> float:
    return sum(predictor(each).mode == each.failure_mode for each in failures) / len(failures)
