"""Limits of the sizes of stored tables, so that a small file from a stranger cannot fill the memory.

Parquet stores what repeats once: a file of kilobytes can hold gigabytes. The footer is not asked, because PyArrow ends
the process where it is asked about a column of a damaged one. So pictures are read some rows at a time, and every
table is checked as Arrow holds it, before Python objects, which take many times as much, are made of it.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import StoreError

MOST_TEXT_BYTES = 16 << 20
TEXT_BYTES_PER_ROW = 1 << 20
"""Most bytes of a column, texts within lists included: for a file, and for each of its rows."""

MOST_COLUMN_BYTES = 1 << 30
"""Most bytes of a column with texts in memory."""

MOST_ITEMS = 1 << 20
ITEMS_PER_ROW = 4096
"""Most items of a column of lists: for a file, and for each of its rows. A row has an item per turn, and a horizon has
at most 1,000 turns. Lists of numbers, such as the tokens of a reply, have the limit in bytes alone."""

MOST_COLUMN_ITEMS = 1 << 24
"""Most items of a column of lists in memory."""

MOST_PICTURE_BYTES = 64 << 20
PICTURE_FACTOR = 64
"""Most bytes of a column of pictures: for a file, and for each byte of the file. Pictures are compressed already."""

BATCH_BYTES = 256 << 20
BATCH_ROWS = 64
"""Most bytes and rows of pictures that are decoded before their size is checked."""


def read_rows(
    address: str, file: pq.ParquetFile, file_bytes: int, columns: list[str] | None, *, repeats: bool = False
) -> pa.Table:
    """Read the rows of a file, its pictures some rows at a time.

    Args:
        address: the file, for messages.
        file: the open file.
        file_bytes: its length.
        columns: names of the columns to read; None for all.
        repeats: whether pictures may repeat from row to row: a file that stores them once may then be small.

    Raises:
        StoreError: it holds more than any file that PIVOT writes.
    """
    schema = file.schema_arrow
    names = [name for name in schema.names if columns is None or name in columns]
    pictures = [name for name in names if not repeats and _holds(schema.field(name).type, pa.types.is_binary)]
    if not pictures:
        table = file.read(columns=columns)
    else:
        shown = _read_pictures(address, file, file_bytes, pictures)
        others = file.read(columns=[name for name in names if name not in pictures])
        arrays = [shown[name] if name in pictures else others[name] for name in names]
        table = pa.table(arrays, pa.schema([schema.field(name) for name in names], schema.metadata))
    refuse_excess(address, table)
    return table


def _read_pictures(address: str, file: pq.ParquetFile, file_bytes: int, names: list[str]) -> pa.Table:
    """Read columns of pictures until they take too much."""
    footer, most = file.metadata, MOST_PICTURE_BYTES + PICTURE_FACTOR * file_bytes
    stated = max((footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)), default=0)
    size, batches = 0, list[pa.RecordBatch]()
    for batch in file.iter_batches(min(BATCH_ROWS, max(1, BATCH_BYTES // max(1, stated))), columns=names):
        size += batch.nbytes
        if size > most:
            raise StoreError(
                f"{address}: its pictures take more than {most >> 20} MiB, more than a file of {file_bytes} bytes can "
                "hold; restore it from a copy"
            )
        batches.append(batch)
    fields = [file.schema_arrow.field(name) for name in names]
    return pa.Table.from_batches(batches, pa.schema(fields)) if batches else pa.schema(fields).empty_table()


def refuse_excess(address: str, table: pa.Table) -> None:
    """Raise StoreError if a column of texts or lists holds more than any that PIVOT writes."""
    rows = table.num_rows
    most_bytes, most_items = MOST_TEXT_BYTES + rows * TEXT_BYTES_PER_ROW, MOST_ITEMS + rows * ITEMS_PER_ROW
    for name, column in zip(table.column_names, table.itercolumns(), strict=True):
        if not _is_nested(column.type) and not _is_text(column.type):
            continue
        has_texts = _holds(column.type, _is_text)
        most = min(most_bytes, MOST_COLUMN_BYTES) if has_texts else most_bytes
        if column.nbytes > most and not _holds(column.type, pa.types.is_binary):
            raise StoreError(
                f"{address}: column {name} takes {column.nbytes >> 20} MiB for {rows} rows, expected at most "
                f"{most >> 20} MiB; restore the file from a copy"
            )
        items, most = sum(map(_items, column.chunks)), min(most_items, MOST_COLUMN_ITEMS)
        if has_texts and items > most:
            raise StoreError(
                f"{address}: the lists of column {name} have {items} items in {rows} rows, expected at most {most}; "
                "restore the file from a copy"
            )


def _items(values: pa.Array) -> int:
    """Return the number of items of the lists in a column, at the depth where there are most."""
    if pa.types.is_struct(values.type):
        return max(map(_items, values.flatten()), default=0)
    if _is_list(values.type):
        items = values.flatten()
        return max(len(items), _items(items))
    return 0


def _holds(kind: pa.DataType, is_sought: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or one within it, is of a kind."""
    if pa.types.is_struct(kind):
        return any(_holds(field.type, is_sought) for field in kind)
    return _holds(kind.value_type, is_sought) if _is_list(kind) else is_sought(kind)


def _is_nested(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or _is_list(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
