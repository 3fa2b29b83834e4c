"""A store whose frames have a codec that a plugin added to the table of codecs."""

import io
import re
from pathlib import Path

import pytest
from PIL import Image
from pivot.core.errors import ImageError
from pivot.core.images import CODECS, Codec, Frame, codec
from pivot.environments.frozenlake.environment import FrozenLakeEnv
from pivot.tests.stores import build_tiny, problems, read_rows


def encode_bmp(frame: Frame) -> bytes:
    """Return the frame as an uncompressed Windows bitmap."""
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "BMP")
    return buffer.getvalue()


BMP = Codec(
    pillow="BMP",
    mime="image/bmp",
    suffix="bmp",
    beginning=re.compile(b"BM"),
    encode=encode_bmp,
    lossless=True,
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
    assert BMP.beginning.match(record["images"][0]["bytes"])
    assert problems(root) == []


def test_an_unknown_codec_is_refused_with_the_table() -> None:
    with pytest.raises(ImageError, match=r"'gif': stores hold png, jpeg"):
        codec("gif")
