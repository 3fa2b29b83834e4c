"""Parquet in and out with the store's rules: metadata columns zstd, image bytes as they are, small row groups.

Image bytes are already compressed, so a second compression costs time and saves nothing. Small row groups let a viewer
read one picture without decoding thousands. Readers check a file against its schema and name it when it is torn.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import StoreError
from ..storage.files import FileRecord, storage_error, sync_folder, write_atomic
from .schema import DATASET_EPISODES, TableSchema

ROW_GROUP = 128
"""Rows a group: one picture is read in about a millisecond, and a group-by does not notice."""

DICTIONARY_BYTES = 256 << 20
"""Upper bound of a dictionary page; lets repeated frames of a row group be stored once."""


def write_table(
    root: Path,
    relative: str,
    schema: TableSchema,
    table: pa.Table,
    *,
    repeats: bool = False,
    settle_folder: bool = True,
) -> FileRecord:
    """Write one Parquet file durably and return its manifest entry.

    ``repeats`` stores equal pictures of a row group once, as a dictionary that every reader resolves by itself.

    Raises:
        StoreError: the file cannot be written.
    """
    images = set(schema.image_paths)
    compression = {path: "none" if path in images else "zstd" for path in schema.leaf_paths}
    dictionary = [path for path in schema.leaf_paths if path not in images or repeats]

    def fill(sink: IO[bytes]) -> None:
        # In memory first, without a call into Python for every page: the file's threads then hardly hold each other up.
        encoded = pa.BufferOutputStream()
        with pq.ParquetWriter(
            encoded,
            table.schema,
            compression=compression,  # pyright: ignore[reportArgumentType] - the stubs know one setting for all columns
            use_dictionary=dictionary,  # pyright: ignore[reportArgumentType]
            dictionary_pagesize_limit=DICTIONARY_BYTES if repeats else None,
            write_statistics=[path for path in schema.leaf_paths if path not in images],  # pyright: ignore[reportArgumentType]
            store_schema=True,
        ) as writer:
            # A row group of no rows is legal, but the Hugging Face reader stops at one.
            if table.num_rows:
                writer.write_table(table, row_group_size=ROW_GROUP)
        sink.write(encoded.getvalue())

    return write_atomic(root, relative, fill, settle_folder=settle_folder)


WRITERS = 4
"""Files of a shard that are written at once: one is encoded while others wait for the disk."""


def write_tables(root: Path, tables: Iterable[tuple[str, TableSchema, pa.Table]]) -> dict[str, FileRecord]:
    """Write several files, each durably; return their manifest entries by path.

    Tables may be made lazily: the next one is built while earlier ones are on their way to the disk. Whole-episode
    tables, whose frames repeat, store equal pictures once.

    Raises:
        StoreError: a file cannot be written.
    """
    with ThreadPoolExecutor(WRITERS) as pool:
        pending = {
            path: pool.submit(
                write_table, root, path, schema, table, repeats=schema is DATASET_EPISODES, settle_folder=False
            )
            for path, schema, table in tables
        }
    records = {path: written.result() for path, written in pending.items()}
    try:
        for folder in sorted({(root / path).parent for path in records}):
            sync_folder(folder)
    except OSError as error:
        raise storage_error("write to", root, error) from error
    return records


def read_table(path: Path, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one Parquet file and check its columns.

    Raises:
        StoreError: the file is missing or torn, or its columns are not the schema's.
    """
    with _opened(path, schema) as file:
        return file.read(columns=list(columns) if columns is not None else None)


def check_file(path: Path, schema: TableSchema) -> None:
    """Check from its footer alone that a file is whole and has the schema's columns.

    Raises:
        StoreError: the file is missing or torn, or its columns are not the schema's.
    """
    with _opened(path, schema):
        pass


@contextlib.contextmanager
def _opened(path: Path, schema: TableSchema) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            check_columns(path, schema, file.schema_arrow)
            yield file
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; run the same build again to make it anew") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StoreError(
            f"{path} cannot be read as Parquet ({error}); it is torn or damaged: delete it and run the same build again"
        ) from error


def check_columns(path: Path, schema: TableSchema, found: pa.Schema) -> None:
    """Raise StoreError unless every declared column is there with its type; more columns are allowed."""
    missing = [name for name in schema.names if name not in found.names]
    if missing:
        raise StoreError(
            f"{path} lacks column{'s' * (len(missing) > 1)} {', '.join(missing)} of table {schema.name}; "
            "it was written by another program or version: delete it and run the same build again"
        )
    for column in schema.columns:
        actual = found.field(column.name).type
        if actual != column.type:
            raise StoreError(
                f"{path}: column {column.name} of table {schema.name} has type {actual}, expected {column.type}; "
                "delete the file and run the same build again"
            )
