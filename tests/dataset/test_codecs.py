"""A store whose frames have a codec that a plugin added to the table of codecs."""

import io
from pathlib import Path

import pytest
from PIL import Image
from pivot.core.errors import ImageError
from pivot.core.images import CODECS, Codec, Frame, codec, container_problem, decode
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.tests.stores import build_tiny, problems, read_rows


def encode_bmp(frame: Frame) -> bytes:
    """Return the frame as an uncompressed Windows bitmap."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "BMP")
    return buffer.getvalue()


def bmp_problem(data: bytes) -> str | None:
    """Compare the file's length with the one in its header."""
    length = int.from_bytes(data[2:6], "little")
    return None if len(data) == length else f"its BMP has {len(data)} bytes, expected {length}"


BMP = Codec(
    pillow="BMP",
    mime="image/bmp",
    suffix="bmp",
    matches=lambda data: data.startswith(b"BM"),
    encode=encode_bmp,
    lossless=True,
    problem=bmp_problem,
)


@pytest.fixture
def bitmap_lake(monkeypatch: pytest.MonkeyPatch) -> None:
    """FrozenLake with frames of a codec that only the table names."""
    monkeypatch.setitem(CODECS, "bmp", BMP)
    monkeypatch.setattr(FrozenLakeEnv, "encode_frame", lambda _, frame: ("bmp", codec("bmp").encode(frame)))


@pytest.mark.usefixtures("bitmap_lake")
def test_a_store_with_a_codec_of_the_table_is_built_verified_and_shown(tmp_path: Path) -> None:
    root = build_tiny(tmp_path / "store", "frozenlake")
    (frames,) = (root / "frames").rglob("*.parquet")
    assert {row["format"] for row in read_rows(root, str(frames))} == {"bmp"}
    files = (root / "dataset").rglob("frozenlake/*.parquet")
    record = next(row for path in files for row in read_rows(root, str(path)))
    assert container_problem(record["images"][0]["bytes"], "bmp") is None
    assert problems(root) == []


def test_an_unknown_codec_is_refused_with_the_table() -> None:
    with pytest.raises(ImageError, match=r"'gif': stores hold png, jpeg"):
        codec("gif")


def test_a_damaged_file_of_a_plugin_codec_is_reported(bitmap_lake: None) -> None:
    data = encode_bmp(decode(CODECS["png"].encode(FrozenLakeEnv().reset(seed=0)[0])))
    assert container_problem(data, "bmp") is None
    assert container_problem(data + b"more", "bmp") == f"its BMP has {len(data) + 4} bytes, expected {len(data)}"
