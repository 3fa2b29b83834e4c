"""Verify what Parquet files say about their rows: readers skip row groups, and so rows, by these numbers."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from ...storage import Storage

pc: Any = pyarrow.compute  # its functions are made when it is imported, unseen by a type checker


def statistics_problems(storage: Storage, name: str) -> list[str]:
    """Compare the statistics of a Parquet file with its rows; pictures have none.

    Nothing where there is no such file, or one that cannot be read: who reads its rows says so.
    """
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            groups = range(file.metadata.num_row_groups)
            return [f"{name}: {each}" for group in groups for each in _group_problems(file, group)]
    except (OSError, ValueError, pa.ArrowException):
        return []


def _group_problems(file: pq.ParquetFile, number: int) -> Iterator[str]:
    group = file.metadata.row_group(number)
    if not group.num_rows:  # legal, but the Hugging Face reader stops at one
        yield "a row group without rows"
        return
    leaves = [group.column(place) for place in range(group.num_columns)]
    described = [leaf for leaf in leaves if leaf.statistics is not None]
    table = file.read_row_group(number, [leaf.path_in_schema for leaf in described])
    for leaf in leaves:
        if leaf.has_column_index or leaf.bloom_filter_offset is not None:
            yield f"an index of column {leaf.path_in_schema}, which the run does not make"
    for leaf in described:
        head, *path = leaf.path_in_schema.split(".")
        values = _values(table[head], path)
        said = leaf.statistics
        if not path and said.has_null_count and said.null_count != values.null_count:
            yield f"{said.null_count} nulls are stated of column {head}, found {values.null_count}"
        if said.has_min_max and values.null_count < len(values):
            low, high = pc.min_max(values).as_py().values()
            if said.min > low or said.max < high:
                yield (
                    f"column {leaf.path_in_schema} is stated to lie between {said.min!r} and {said.max!r}, "
                    f"found {low!r} and {high!r}"
                )


def _values(column: pa.ChunkedArray, path: list[str]) -> pa.ChunkedArray:
    """Return the values of a leaf within lists and structs."""
    for part in path:
        if pa.types.is_struct(column.type):
            column = pc.struct_field(column, part)
        elif part == "element":  # below a part called list
            column = pc.list_flatten(column)
    return column
