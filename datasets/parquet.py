"""Parquet in and out with the store's rules: metadata columns zstd, image bytes as they are, small row groups.

Image bytes are already compressed, so a second compression costs time and saves nothing. Small row groups let a viewer
read one picture without decoding thousands. Readers check a file against its schema and name it when it is torn.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import StoreError
from .files import FileRecord, write_atomic
from .schema import TableSchema

ROW_GROUP = 128
"""Rows a group: one picture is read in about a millisecond, and a group-by does not notice."""

DICTIONARY_BYTES = 256 << 20
"""Upper bound of a dictionary page; lets repeated frames of a row group be stored once."""


def write_table(
    root: Path, relative: str, schema: TableSchema, table: pa.Table, *, repeats: bool = False
) -> FileRecord:
    """Write one Parquet file durably and return its manifest entry.

    ``repeats`` stores equal pictures of a row group once, as a dictionary that every reader resolves by itself.

    Raises:
        StoreError: the file cannot be written.
    """
    images = set(schema.image_paths)
    compression = {path: "none" if path in images else "zstd" for path in schema.leaf_paths}
    dictionary = [path for path in schema.leaf_paths if path not in images or repeats]

    def fill(sink: object) -> None:
        with pq.ParquetWriter(
            sink,
            table.schema,
            compression=compression,  # pyright: ignore[reportArgumentType] - the stubs know one setting for all columns
            use_dictionary=dictionary,  # pyright: ignore[reportArgumentType]
            dictionary_pagesize_limit=DICTIONARY_BYTES if repeats else None,
            write_statistics=[path for path in schema.leaf_paths if path not in images],  # pyright: ignore[reportArgumentType]
            store_schema=True,
        ) as writer:
            writer.write_table(table, row_group_size=ROW_GROUP)

    return write_atomic(root, relative, fill)


def read_table(path: Path, schema: TableSchema, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one Parquet file and check its columns.

    Raises:
        StoreError: the file is missing or torn, or its columns are not the schema's.
    """
    try:
        with pq.ParquetFile(path) as file:
            found = file.schema_arrow
            check_columns(path, schema, found)
            return file.read(columns=list(columns) if columns is not None else None)
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; run the same build again to make it anew") from error
    except (pa.ArrowInvalid, OSError) as error:
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
