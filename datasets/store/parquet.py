"""Read and write Parquet by the rules of the store: zstd for columns, none for image bytes, small row groups.

Image bytes are already compressed, so a second compression costs time and saves nothing. Small row groups let a viewer
read one picture without decoding thousands; tables without pictures have one group per shard. Readers check a file
against its schema, and name an incomplete one.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import StoreError
from ...core.storage import FileRecord, Storage
from ...core.storage.base import storage_error
from .schema import EPISODES, LABELS, TableSchema

ROW_GROUP = 128
"""Rows a group where rows hold pictures: one of them is read in about a millisecond."""
PLAIN_ROW_GROUP = 65_536
"""Rows a group elsewhere: one a shard. Small groups would take half as much space again and three times as long to
decode."""

MOST_EXPANDED, MOST_TIMES = 256 * 2**20, 100
"""Largest uncompressed size of the columns of a file: these bytes, or this multiple of the compressed ones."""

WRITERS = 4
"""Files that are written in parallel: one is encoded while others wait for the disk."""
READERS = 8
"""Files that are fetched at once, where each is a request."""

DICTIONARY_BYTES = 256 << 20
"""Upper bound of a dictionary page; lets repeated frames of a row group be stored once."""


def write_tables(
    storage: Storage, tables: Iterable[tuple[str, TableSchema, pa.Table]], *, sparse: bool = False
) -> dict[str, FileRecord]:
    """Write several Parquet files, each durably; return their manifest entries by name.

    Tables may be made lazily: the next one is built while earlier ones are on their way to the disk. Tables
    whose pictures repeat store equal ones once.

    Where they are ``sparse``, a table without rows gets no file, and loses the one that an earlier run left.

    Raises:
        StoreError: a file cannot be written.
    """
    pending: dict[str, Future[FileRecord]] = {}
    with ThreadPoolExecutor(WRITERS) as pool:
        for name, schema, table in tables:
            if sparse and not table.num_rows:
                storage.delete(name)
            else:
                pending[name] = pool.submit(storage.write, name, partial(write_parquet, schema, table), flush=False)
    records = {name: written.result() for name, written in pending.items()}
    storage.flush(records)
    return records


def write_parquet(schema: TableSchema, table: pa.Table, sink: IO[bytes]) -> None:
    """Write a table as a Parquet file into a binary sink.

    Where pictures repeat, equal ones of a row group are stored once, as a dictionary that every reader resolves by
    itself.
    """
    images = set(schema.image_paths)
    compression = {path: "none" if path in images else "zstd" for path in schema.leaf_paths}
    dictionary = [path for path in schema.leaf_paths if path not in images or schema.repeats]
    # In memory first, without a call into Python for every page: the file's threads then hardly hold each other up.
    encoded = pa.BufferOutputStream()
    with pq.ParquetWriter(
        encoded,
        table.schema,
        compression=compression,  # pyright: ignore[reportArgumentType] - the stubs know one setting for all columns
        use_dictionary=dictionary,  # pyright: ignore[reportArgumentType]
        dictionary_pagesize_limit=DICTIONARY_BYTES if schema.repeats else None,
        write_statistics=[path for path in schema.leaf_paths if path not in images],  # pyright: ignore[reportArgumentType]
        store_schema=True,
    ) as writer:
        # A row group of no rows is legal, but the Hugging Face reader stops at one.
        if table.num_rows:
            writer.write_table(table, row_group_size=ROW_GROUP if images else PLAIN_ROW_GROUP)
    sink.write(encoded.getvalue())


def read_table(storage: Storage, name: str, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one Parquet file and check its columns.

    Raises:
        StoreError: the file is missing or torn, or its columns are not the schema's.
    """
    with _opened(storage, name, schema) as file:
        return file.read(None if columns is None else [each for each in file.schema_arrow.names if each in columns])


def read_files(
    storage: Storage, names: Sequence[str], schema: TableSchema, columns: Sequence[str], numbered: Collection[str] = ()
) -> pa.Table:
    """Read some columns of several files as one table of one chunk.

    Whole files, of which polars decodes the columns: shards are small, so that Arrow takes three times as long, DuckDB
    twice, and an object store a request a column. Of texts that only tell rows apart, such as long settings in the key
    of a group, a number stands in the place of each (``numbered``), the same for equal ones.

    Raises:
        StoreError: a file is missing. pl.exceptions.PolarsError, pl.exceptions.PanicException: one is torn, or lacks a
            column, or has it with another type.
    """
    import polars as pl  # noqa: PLC0415 - machines that only train do without

    empty = pa.Table.from_batches([], schema.arrow).select(list(columns))  # empty_table() imports pandas
    if not names:
        return empty
    with ThreadPoolExecutor(READERS if storage.remote else 1) as pool:
        contents = list(pool.map(storage.read_bytes, names))
    rows = pl.scan_parquet(contents, glob=False, schema=pl.DataFrame(empty).schema, extra_columns="ignore")
    numbers = [pl.col(name).cast(pl.Categorical).to_physical() for name in columns if name in numbered]
    return rows.with_columns(numbers).collect().rechunk().to_arrow(compat_level=pl.CompatLevel.newest())


def check_file(storage: Storage, name: str, schema: TableSchema) -> None:
    """Check from its footer that a file is whole and has the schema's columns.

    Raises:
        StoreError: the file is missing or torn, its columns are not the schema's, or many rows are of few episodes.
    """
    with _opened(storage, name, schema):
        pass


@contextlib.contextmanager
def _opened(storage: Storage, name: str, schema: TableSchema) -> Iterator[pq.ParquetFile]:
    """Open a file, its columns checked."""
    address = storage.address(name)
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            check_columns(address, schema, file.schema_arrow)
            # Kilobytes that would fill the memory. The sizes of columns are not read: of a damaged footer, PyArrow ends
            # the process there.
            metadata, packed = file.metadata, stream.seek(0, os.SEEK_END)
            plain = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
            if plain > max(MOST_EXPANDED, MOST_TIMES * packed):
                raise StoreError(
                    f"{address} has {packed} bytes that expand to {plain}, which no run writes; restore it from a copy"
                )
            # Many rows of few episodes, which compression lets a file of kilobytes hold.
            if schema in (EPISODES, LABELS) and metadata.num_rows > PLAIN_ROW_GROUP:
                names = file.read(["episode_id"])["episode_id"]
                if (count := len(names.unique())) < len(names):
                    raise StoreError(
                        f"{address} has {len(names)} rows of {count} episodes, expected one per episode; see what else "
                        "is wrong with: pivot verify"
                    )
            yield file
    except FileNotFoundError as error:
        raise StoreError(f"{address} is missing; run the same build again to write it") from error
    except MemoryError:
        raise  # also PyArrow's; the file may be whole
    except PermissionError as error:
        raise storage_error("read", address, error) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        if "temporarily unavailable" in str(error):  # PyArrow has no type for a thread that cannot be started
            raise MemoryError(str(error)) from error
        raise StoreError(
            f"{address} cannot be read as Parquet ({error}); it is torn or damaged: "
            "delete it and run the same build again"
        ) from error


def count_rows(storage: Storage, name: str) -> int:
    """Return the number of rows of a file, from its footer.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        with storage.open(name) as stream:
            return pq.read_metadata(stream).num_rows
    except OSError as error:
        raise storage_error("read", storage.address(name), error) from error


def check_columns(address: str, schema: TableSchema, stored: pa.Schema) -> None:
    """Raise StoreError unless every declared column is there once with its type.

    More columns are allowed.
    """
    twice = [column.name for column in schema.columns if stored.names.count(column.name) > 1]
    if twice:
        raise StoreError(f"{address} has two columns {twice[0]}, expected one; restore it from a copy")
    missing = [column.name for column in schema.columns if column.name not in stored.names]
    if missing:
        raise StoreError(
            f"{address} lacks column{'s' * (len(missing) > 1)} {', '.join(missing)} of table {schema.name}; "
            "another program wrote it; restore it from a copy"
        )
    for column in (column for column in schema.columns if column.name in stored.names):
        actual = stored.field(column.name).type
        if actual != column.type:
            raise StoreError(
                f"{address}: column {column.name} of table {schema.name} has type {actual}, expected {column.type}; "
                "another program wrote it; restore it from a copy"
            )
