"""Change a number in the footer of a Parquet file: just enough of Thrift's compact protocol to find it."""


def with_row_count(data: bytes, rows: int) -> bytes:
    """Return a Parquet file whose footer states another number of rows; its row groups stay as they are."""
    length = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - length
    footer = data[start:-8]
    first, last = _row_count(footer)
    changed = footer[:first] + _varint(rows << 1) + footer[last:]  # zigzag: twice the number
    return data[:start] + changed + len(changed).to_bytes(4, "little") + data[-4:]


def _row_count(footer: bytes) -> tuple[int, int]:
    """Return where the field ``num_rows`` begins and ends: field 3, after a version and a list of schema elements."""
    index, field = 0, 0
    while True:
        header, index = footer[index], index + 1
        field += header >> 4
        kind = header & 15
        end = _skip(footer, index, kind)
        if field == 3:
            return index, end
        index = end


def _skip(data: bytes, index: int, kind: int) -> int:  # noqa: PLR0911
    """Return where a value of a kind ends."""
    if kind in (1, 2):  # a boolean, whose value is in the header
        return index
    if kind == 3:
        return index + 1
    if kind in (4, 5, 6):
        return _read_varint(data, index)[1]
    if kind == 7:
        return index + 8
    if kind == 8:
        length, index = _read_varint(data, index)
        return index + length
    if kind in (9, 10):
        size, inner, index = data[index] >> 4, data[index] & 15, index + 1
        if size == 15:
            size, index = _read_varint(data, index)
        for _ in range(size):
            index = index + 1 if inner in (1, 2) else _skip(data, index, inner)
        return index
    assert kind == 12, f"kind {kind} is not in a Parquet footer"
    while data[index]:
        kind = data[index] & 15
        index = _skip(data, index + 1, kind)
    return index + 1


def _read_varint(data: bytes, index: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte, index = data[index], index + 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, index


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
