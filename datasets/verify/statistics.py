"""Verify what the footers of Parquet files say about their rows: readers count, skip and sort rows by these numbers.

PyArrow ends the process, without an error that Python could catch, where it is asked about a column of a damaged
footer. It raises one where it reads the rows. So rows are read first, and statistics are only asked for where the
types agree.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from ...core.storage import Storage
from .limits import Limits

pc: Any = pyarrow.compute  # its functions are made when it is imported, unseen by a type checker


def size_problems(storage: Storage, names: Iterable[str], limits: Limits) -> list[str]:
    """Describe Parquet files whose rows, as the footers state them, take more memory than the limit."""
    problems = []
    for name in names:
        try:
            with storage.open(name) as stream, pq.ParquetFile(stream) as file:
                groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        except (OSError, ValueError, pa.ArrowException):
            continue
        stated = sum(abs(group.total_byte_size) for group in groups)  # those of its columns are compared later
        if stated > limits.memory << 20:
            problems.append(limits.problem(f"{name}, whose footer states {stated} bytes,", "memory"))
    return problems


def statistics_problems(storage: Storage, name: str, schema: pa.Schema) -> list[str]:
    """Compare the footer of a Parquet file with its rows, and its physical types with those of ``schema``.

    Pictures have no statistics. A missing file has no problems here: the reader of its rows reports it.
    """
    problems = []
    try:
        with storage.open(name) as stream, pq.ParquetFile(stream) as file:
            problems += _file_problems(file, schema)
            for number in range(file.metadata.num_row_groups):
                problems += _group_problems(file, number)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, pa.ArrowException) as error:
        problems.append(f"its footer and its rows cannot be compared ({error})")
    return [f"{name}: {each}" for each in problems]


def _file_problems(file: pq.ParquetFile, schema: pa.Schema) -> Iterator[str]:
    footer = file.metadata
    rows = sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    if footer.num_rows != rows:
        yield f"the footer states {footer.num_rows} rows, its row groups {rows}"
    if not _WRITER.fullmatch(footer.created_by):  # readers distrust or reinterpret the statistics of some writers
        yield f"the footer names the writer {footer.created_by[:80]!r}, expected a parquet-cpp-arrow version"
    columns = [(leaf.path, leaf.physical_type, str(leaf.logical_type)) for leaf in _leaves(file.schema)]
    if schema.names == file.schema_arrow.names and columns != _expected_leaves(schema):
        yield "its columns have other Parquet types than in a file of the run"


def _leaves(schema: pq.ParquetSchema) -> list[Any]:
    return [schema.column(index) for index in range(len(schema))]


def _expected_leaves(schema: pa.Schema) -> list[tuple[str, str, str]]:
    """Return path, physical and logical type of each leaf column as our writer stores them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    with pq.ParquetFile(pa.BufferReader(sink.getvalue())) as file:
        return [(leaf.path, leaf.physical_type, str(leaf.logical_type)) for leaf in _leaves(file.schema)]


_WRITER = re.compile(r"parquet-cpp-arrow version \d+(\.\d+)*")


def _stated_problems(group: pq.RowGroupMetaData) -> Iterator[str]:
    """Describe what a row group states of itself that its columns contradict, or that the run does not make."""
    if group.sorting_columns:
        yield "a row group states an order of its rows, which the run does not make"
    size = sum(group.column(index).total_uncompressed_size for index in range(group.num_columns))
    if group.total_byte_size != size:
        yield f"a row group states {group.total_byte_size} bytes, its columns {size}"
    for index in range(group.num_columns):
        column = group.column(index)
        if "." not in column.path_in_schema and column.num_values != group.num_rows:
            yield f"column {column.path_in_schema} states {column.num_values} values, its group {group.num_rows} rows"
        if column.file_path:
            yield f"column {column.path_in_schema} is stated to be in another file"


def _group_problems(file: pq.ParquetFile, number: int) -> Iterator[str]:
    group = file.metadata.row_group(number)
    if not group.num_rows:  # legal, but the Hugging Face reader stops at one
        yield "a row group without rows"
        return
    # One thread: others would still wait for the stream where a damaged column raised, and end the process at its exit.
    table = file.read_row_group(number, use_threads=False)
    yield from _stated_problems(group)
    leaves = [group.column(place) for place in range(group.num_columns)]
    for leaf, declared in zip(leaves, _leaves(file.schema), strict=True):
        stated, expected = (
            f"{each.physical_type} {path}" for each, path in ((leaf, leaf.path_in_schema), (declared, declared.path))
        )
        if stated != expected or declared.path.split(".")[0] not in table.column_names:
            yield f"a row group states a column {stated!r}, expected {expected!r}"
            return
    described = [leaf for leaf in leaves if leaf.statistics is not None]
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
