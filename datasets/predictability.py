"""What trivial predictors reach on a store's dataset: the bar that an Analyzer which looks at pictures has to clear.

Each is fitted on the training side of one environment and reads what the Analyzer's log shows, so a store with
``--log actions`` gives less away than one with the full log. Everything is read from the dataset's own rows.
"""

from collections.abc import Sequence

from .export import dataset_file
from .parquet import read_table
from .predictors import PREDICTORS, LoggedFailure, Predictor, accuracy
from .schema import DATASET
from .split import TRAIN, VALIDATION
from .store import DATASET_FOLDER, Store

PREDICTOR_HEADER = ("environment", "predictor", "pivot % train", "pivot % valid.", "mode % valid.")

_COLUMNS = ["env", "horizon", "actions", "action_log", "pivot_step", "failure_mode"]


def dataset_failures(store: Store, env: str, side: str, folder: str = DATASET_FOLDER) -> list[LoggedFailure]:
    """Read the records of one environment on one side of the split, without their pictures.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    shards = (shard for shard in store.config.shards() if shard.env == env)
    tables = (
        read_table(store.storage, dataset_file(folder, DATASET, shard, side), DATASET, _COLUMNS) for shard in shards
    )
    return [LoggedFailure.of_record(record) for table in tables for record in table.to_pylist()]


def predictor_rows(store: Store, folder: str = DATASET_FOLDER) -> list[list[str]]:
    """Return the cells under ``PREDICTOR_HEADER``; an environment without training records has none.

    Raises:
        StoreError: a file of the dataset is missing or cannot be read.
    """
    rows: list[list[str]] = []
    for env in store.config.environments:
        train, validation = (dataset_failures(store, env, side, folder) for side in (TRAIN, VALIDATION))
        for name, fit in PREDICTORS.items() if train else ():
            predictor = fit(train)
            shares = (
                accuracy(predictor, train),
                accuracy(predictor, validation) if validation else None,
                _right_modes(predictor, validation) if validation else None,
            )
            rows.append([env, name, *("–" if share is None else f"{100 * share:.1f}" for share in shares)])
    return rows


def _right_modes(predictor: Predictor, failures: Sequence[LoggedFailure]) -> float:
    return sum(predictor(each).mode == each.failure_mode for each in failures) / len(failures)
