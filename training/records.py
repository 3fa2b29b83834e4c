"""The one reader of datasets, for training and evaluation: it finds files, reads rows and checks them.

A dataset is a store, a folder as the export wrote it, or such a folder with JSON lines in place of Parquet: the same
rows in ``ENV/train-*.jsonl``, one per line, whose ``images`` name picture files beside it. These need no pyarrow. Rows
are read with the columns that a caller needs, so that the labels of a whole split fit into memory while its pictures
are read one by one. A bad file or row is a :class:`~pivot.core.errors.TrainingError` that names file, row and remedy;
no row is skipped.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import PluginError, StoreError, TrainingError
from ..core.identity import digest
from ..core.storage import FileRecord, Storage, open_storage, parse_address
from ..datasets.store.config import environment
from ..datasets.store.location import DATASET_FOLDER, MANIFEST, RUN, read_manifest, refuse_unfinished
from ..datasets.store.splits import SIDES
from ..labeling.analyzer import LOG_HEADING
from ..labeling.target import BadTargetError, parse_target, profile_under, target_mode, target_modes

LINES = ".jsonl"
"""Ending of files of JSON lines."""
ALL = "all"
"""The config of all environments."""
ROLES = ("system", "user", "assistant")
"""Roles that a message may have; a chat template would show any other text."""
REBUILD = "build the dataset again, or restore the file from a copy"
BATCH_ROWS = 8
"""Rows in memory at a time; a collage of rendered views has up to 1 MB."""

LABEL_COLUMNS = (
    *("episode_id", "env", "env_config", "task_id", "completion", "pivot_step", "failure_mode", "failure_reason"),
    *("actions", "action_log", "initial_state", "horizon", "num_steps"),
    *("certificate", "witness", "infeasible_at_start"),
)
"""Every column but the Analyzer's prompt and picture."""
SHOWN_COLUMNS = ("episode_id", "env", "env_config", "prompt", "images", "num_steps", "completion", "failure_mode")
"""The Analyzer's prompt and picture, and the columns that bound its answer."""
NULLABLE = frozenset({"certificate", "witness", "infeasible_at_start", "failure_reason"})
"""Columns that may be null."""


@dataclass(frozen=True)
class DatasetFiles:
    """The files with the rows of some configs of a dataset."""

    storage: Storage
    """Storage of the dataset's folder."""
    by_side: dict[str, list[tuple[str, str]]]
    """Names in ``storage`` with the environment that each may hold, in a fixed order."""
    manifest: str | None
    """SHA-256 of the store's manifest; None for a dataset folder outside a store."""
    listed: Mapping[str, FileRecord] = field(default_factory=dict[str, FileRecord])
    """Entries of the files in the manifest."""

    @property
    def digest(self) -> str:
        """Digest of the content: the manifest's, or one of all files.

        Raises:
            TrainingError: a file is not as the manifest lists it.
        """
        names = {name for each in self.by_side.values() for name, _ in each}
        folders = {name.partition("/")[0] for name in names if name.endswith(LINES)}
        names.update(name for folder in folders for name in self.storage.listing(folder))  # pictures beside the lines
        files = {name: self.storage.record(name) for name in sorted(names)}
        if self.manifest is None:
            return digest({name: record.sha256 for name, record in files.items()}, 64)
        changed = [name for name, record in files.items() if self.listed.get(name) != record]
        if changed:
            raise TrainingError(
                f"{self.storage.address(changed[0])} is not the file that {MANIFEST} lists; restore it from a copy, or "
                "make the dataset again with: pivot relabel STORE"
            )
        return self.manifest


def find_files(source: str, configs: Sequence[str] = (ALL,)) -> DatasetFiles:
    """Return the files of some configs, which are environments or ``all``.

    Raises:
        TrainingError: the dataset does not exist, its build did not finish, or it lacks a config.
    """
    storage = open_storage(parse_address(source))
    if not storage.exists():
        raise TrainingError(
            f"{source} does not exist, expected a store or a dataset folder; get one of the hub with: "
            "hf download USER/NAME --repo-type dataset --local-dir DIR"
        )
    storage.check_contents()
    manifest, listed = None, dict[str, FileRecord]()
    if storage.stat(RUN) is not None:
        try:
            refuse_unfinished(storage)
            manifest, beginning = storage.record(MANIFEST).sha256, f"{DATASET_FOLDER}/"
            entries = read_manifest(storage)
        except StoreError as error:
            raise TrainingError(str(error)) from error
        listed = {name.removeprefix(beginning): entry for name, entry in entries.items() if name.startswith(beginning)}
        storage = open_storage(parse_address(source) / DATASET_FOLDER)
    present: dict[str, dict[str, list[str]]] = {}
    for name in sorted(storage.listing()):
        env, _, file = name.partition("/")
        side = file.partition("-")[0]
        if name.endswith((".parquet", LINES)) and side in SIDES and "/" not in file and not env.endswith("_episodes"):
            present.setdefault(env, {}).setdefault(side, []).append(name)
    if not present:
        raise TrainingError(
            f"{source} holds no dataset, expected a store, or a folder with ENV/train-*.parquet as "
            f"pivot build writes it, or ENV/train-*{LINES}; make one with: pivot build sokoban --out runs/first"
        )
    chosen = sorted(present) if ALL in configs else list(configs)
    unknown = [env for env in chosen if env not in present]
    if unknown:
        raise TrainingError(f"{source} has no config {unknown[0]!r}; it has: {', '.join(sorted(present))}, {ALL}")
    by_side = {side: [(name, env) for env in chosen for name in present[env].get(side, [])] for side in SIDES}
    return DatasetFiles(storage, by_side, manifest, listed)


def absolute_source(source: str) -> str:
    """Return the address of a dataset as it is valid in every folder."""
    address = parse_address(source)
    return str(address.absolute()) if isinstance(address, Path) and address.exists() else source


def rows_of(storage: Storage, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with its file and row for messages; pictures stay encoded.

    Raises:
        TrainingError: the file is incomplete, or has different columns.
    """
    address = storage.address(name)
    if name.endswith(LINES):
        yield from _rows_of_lines(storage, name, columns)
        return
    try:
        import pyarrow as pa  # noqa: PLC0415 - a machine that only trains may do without, and so with polars
        import pyarrow.parquet as pq  # noqa: PLC0415

        from ..datasets.store.parquet import check_columns  # noqa: PLC0415
        from ..datasets.store.schema import DATASET, TableSchema  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"{address}: found no package {error.name}, expected it for Parquet; install it, or give JSON lines"
        ) from error
    schema = TableSchema(DATASET.name, DATASET.doc, tuple(DATASET.only(*columns)))
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            check_columns(address, schema, file.schema_arrow)
            number = 0
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns)):
                for row in batch.to_pylist():
                    yield f"{address}, row {number}", row
                    number += 1
    except (pa.ArrowException, OSError) as error:
        raise TrainingError(f"{address} cannot be read as Parquet ({error}); {REBUILD}") from error
    except StoreError as error:
        raise TrainingError(str(error)) from error


def lines_of(storage: Storage, name: str, most: int = -1) -> Iterator[bytes]:
    """Yield the lines of a file; of a line longer than ``most`` bytes its parts of so many bytes.

    Raises:
        TrainingError: the file cannot be read, or not to its end.
    """
    try:
        with storage.open(name) as stream:
            while line := stream.readline(most):
                yield line
    except OSError as error:
        raise TrainingError(f"{storage.address(name)} cannot be read ({error}); try again, or restore it") from error


def _rows_of_lines(storage: Storage, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file of JSON lines, with the bytes of their picture files."""
    folder = name.rpartition("/")[0]
    for number, line in enumerate(lines_of(storage, name)):
        where = f"{storage.address(name)}, row {number}"
        try:
            content = json.loads(line)
            row = {column: content[column] for column in columns}
            if "images" in row:
                paths = [image["path"] for image in row["images"]]
                if outside := [path for path in paths if path.startswith("/") or ".." in path.split("/")]:
                    raise _refusal(where, f"picture {outside[0]!r}", "the name of a file beside the JSON lines")
                row["images"] = [{"bytes": storage.read_bytes(f"{folder}/{path}")} for path in paths]
        except KeyError as error:
            raise _refusal(where, f"no column {error}", "the columns of the table dataset") from error
        except (StoreError, OSError, ValueError, TypeError, AttributeError) as error:
            raise _refusal(where, f"a line that cannot be read ({error})", "a JSON object") from error
        yield where, row


@dataclass(frozen=True)
class Records:
    """The records of one config of a dataset."""

    address: str
    """Folder, for messages."""
    config: str
    """Environment, or ``all``."""
    files: DatasetFiles

    def rows(self, side: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the checked rows of a split in a fixed order, with some columns; pictures stay encoded.

        With column ``prompt`` or ``completion``, ``env`` and ``failure_mode`` are needed, too.

        Raises:
            TrainingError: a file is damaged, or has other columns or an invalid row.
        """
        for name, env in self.files.by_side[side]:
            for _, row in self.rows_of(name, env, columns):
                yield row

    def rows_of(self, name: str, env: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the checked rows of one file, whose config is that of ``env``, each with file and row for messages."""
        for where, row in rows_of(self.files.storage, name, columns):
            try:
                check_row(row, where, env)
            except (AttributeError, KeyError, TypeError, ValueError) as error:  # JSON lines have no types
                expected = "the columns of the table dataset"
                raise _refusal(where, f"a value of another type ({error})", expected) from error
            yield where, row


def open_records(address: str, config: str = ALL) -> Records:
    """Return the records of ``config`` (an environment, or ``all``) of a store or a dataset folder.

    Raises:
        TrainingError: see :func:`find_files`.
    """
    return Records(address, config, find_files(address, (config,)))


# Checks


def check_row(row: Mapping[str, Any], where: str, env: str | None = None) -> None:
    """Refuse an invalid row of the ``dataset`` table; columns that were not read are not checked.

    Args:
        row: columns by name; ``num_steps`` with every column that it bounds, ``env`` with the target.
        where: file and row, for messages.
        env: environment whose config holds the row; None where a config mixes environments.

    Raises:
        TrainingError: a column is invalid, or two columns contradict each other.
    """
    missing = [name for name, value in row.items() if value is None and name not in NULLABLE]
    if missing:
        raise _refusal(where, f"no value in column {missing[0]}", "one in every row")
    if env is not None and row.get("env", env) != env:
        raise _refusal(where, f"a record of {row['env']}", f"one of {env}, whose config this is")
    steps = row.get("num_steps", 0)
    if steps > row.get("horizon", steps):
        raise _refusal(where, f"num_steps {steps}", f"at most {row['horizon']}, as column horizon says")
    if None in row.get("actions", ()):
        raise _refusal(where, "an action without a value in column actions", "a text for every step")
    for name, length in (("actions", len), ("action_log", lambda text: len(text.splitlines()))):
        if name in row and (length(row[name]) != steps or not steps):
            raise _refusal(where, f"{length(row[name])} steps in column {name}", f"{steps}, as column num_steps says")
    if "pivot_step" in row and not 0 <= row["pivot_step"] < steps:
        raise _refusal(where, f"pivot_step {row['pivot_step']}", f"0 to {steps - 1}, the labelled tiles")
    if "images" in row:
        _check_images(row["images"], where)
    if "prompt" in row:
        _check_prompt(row["prompt"], row.get("num_steps"), where)
    if "completion" in row:
        _check_target(row, where)


def target_text(row: Mapping[str, Any]) -> str:
    """Return the text of the target of a checked row."""
    return row["completion"][0]["content"][0]["text"]


def _check_images(images: Sequence[Mapping[str, Any] | None], where: str) -> None:
    if len(images) != 1:
        raise _refusal(where, f"{len(images)} images", "exactly one image, the collage")
    if images[0] is None or not images[0]["bytes"]:
        raise _refusal(where, "an empty image", "exactly one image, the collage")


def _check_messages(column: str, messages: Sequence[Mapping[str, Any] | None], where: str) -> None:
    """Refuse messages with a missing value inside, or with a role that no chat has."""
    for message in messages:
        content = None if message is None else message["content"]
        if message is None or content is None or any(part is None or part["type"] is None for part in content):
            raise _refusal(where, f"a message without a value inside column {column}", "a role and typed parts in each")
        if message["role"] not in ROLES:
            raise _refusal(where, f"role {message['role']!r} in column {column}", f"one of {', '.join(ROLES)}")
        if any(part["type"] == "text" and part["text"] is None for part in content):
            raise _refusal(where, f"a text part without a text in column {column}", "a text")


def _check_prompt(prompt: Sequence[Any], steps: int | None, where: str) -> None:
    _check_messages("prompt", prompt, where)
    parts = [part for message in prompt for part in message["content"]]
    marks = sum(part["type"] == "image" for part in parts)
    if marks != 1:
        raise _refusal(where, f"{marks} image parts in the prompt", "one, where the collage goes")
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    logged = sum(line.startswith("step ") for line in text.partition(LOG_HEADING)[2].splitlines())
    if steps is not None and logged not in (0, steps):
        raise _refusal(where, f"{logged} steps in the log of the prompt", f"{steps}, as column num_steps says")


def _check_target(row: Mapping[str, Any], where: str) -> None:
    completion = row["completion"]
    _check_messages("completion", completion, where)
    texts = [part["text"] for message in completion for part in message["content"]]
    if len(completion) != 1 or completion[0]["role"] != "assistant" or len(texts) != 1 or not texts[0]:
        raise _refusal(where, "a completion that is not one text", "the target as the assistant's only turn")
    try:
        target = parse_target(texts[0])
    except BadTargetError as error:
        raise _refusal(where, f"a target that cannot be read ({error})", "JSON with the three fields") from None
    steps = row["num_steps"]
    if not 0 <= target.pivot_step < steps:
        raise _refusal(where, f"pivot_step {target.pivot_step} in the target", f"0 to {steps - 1}, the labelled tiles")
    if target.pivot_step != row.get("pivot_step", target.pivot_step):
        expected = f"{row['pivot_step']}, as column pivot_step says"
        raise _refusal(where, f"pivot_step {target.pivot_step} in the target", expected)
    try:
        profile = profile_under(environment(row["env"]).profile, json.loads(row["env_config"]))
    except PluginError as error:
        raise _refusal(where, f"a record of {row['env']}", "an installed environment", str(error)) from error
    allowed = {*target_modes(profile, "certificate"), *target_modes(profile, "paper")}
    if target.failure_mode not in allowed:
        modes = ", ".join(sorted(allowed))
        raise _refusal(where, f"failure_mode {target.failure_mode!r} in the target", f"one of {modes}")
    column = row.get("failure_mode", target.failure_mode)
    names = {target_mode(row["env"], column, "certificate"), target_mode(row["env"], column, "paper")}
    if target.failure_mode not in names:
        expected = f"{' or '.join(sorted(names))}, as column failure_mode says"
        raise _refusal(where, f"failure_mode {target.failure_mode!r} in the target", expected)


def _refusal(where: str, what: str, expected: str, remedy: str = REBUILD) -> TrainingError:
    return TrainingError(f"{where}: found {what}, expected {expected}; {remedy}")
