"""Compare frame ids, PNG writer and decoder with Pillow, OpenCV and a direct reading of the contract."""

import hashlib
import io
import zlib
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pivot.core.errors import ImageError
from pivot.core.images import MAX_PIXELS, Frame, decode, encode_jpeg, encode_png, frame_id


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Generate frames of any size with one to very many colours, including flat areas."""
    height, width = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    colours = draw(st.sampled_from([1, 2, 3, 17, 255, 256, 257, 100_000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    palette = rng.integers(0, 256, (colours, 3), dtype=np.uint8)
    block = draw(st.sampled_from([1, 4, 16]))
    picks = rng.integers(0, colours, (-(-height // block), -(-width // block)))
    return palette[np.kron(picks, np.ones((block, block), np.int64))[:height, :width]]


def with_pillow(data: bytes) -> Frame:
    """Decode with Pillow."""
    return np.array(Image.open(io.BytesIO(data)).convert("RGB"))


def with_opencv(data: bytes) -> Frame:
    """Decode with OpenCV."""
    bgr = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert bgr is not None
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB).astype(np.uint8)


@settings(max_examples=250, deadline=None)
@given(frames())
def test_png_round_trip_is_exact_for_every_reader(frame: Frame) -> None:
    data = encode_png(frame)
    for reader in (decode, with_pillow, with_opencv):
        np.testing.assert_array_equal(reader(data), frame)
    assert encode_png(frame.copy()) == data


@pytest.mark.parametrize("colours", [1, 2, 254, 255, 256, 257, 258])
@pytest.mark.parametrize("step", [1, 1024, 0x010101 // 257])
def test_palette_boundary(colours: int, step: int) -> None:
    codes = (np.arange(colours) * step) % (1 << 24)
    frame = np.stack([codes >> 16, (codes >> 8) & 255, codes & 255], axis=1).astype(np.uint8)[None]
    data = encode_png(frame)
    assert data[25] == (3 if colours <= 256 else 2)  # colour type: indexed or RGB
    np.testing.assert_array_equal(decode(data), frame)
    np.testing.assert_array_equal(with_opencv(data), frame)


def test_views_encode_like_copies() -> None:
    frame = np.random.default_rng(0).integers(0, 4, (40, 60, 3), dtype=np.uint8) * 80
    view = frame[::-1, ::2]
    assert encode_png(view) == encode_png(view.copy()) and frame_id(view) == frame_id(view.copy())


def test_threads_do_not_share_working_memory() -> None:
    rng = np.random.default_rng(3)
    pictures = [rng.integers(0, 2 + k % 300, (50 + k, 90 - k // 2, 3), dtype=np.uint8) for k in range(60)]
    alone = [encode_png(picture) for picture in pictures]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(encode_png, pictures * 5)) == alone * 5


def test_frame_id_is_the_documented_hash() -> None:
    frame = np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)
    assert frame_id(frame) == hashlib.sha256(b"1x2x3:\x01\x02\x03\x04\x05\x06").hexdigest()
    assert frame_id(frame) == "90bfab6f3010c428fa9ef58ca00fe0fc5982771584e81035dd2d0c890b9d6a98"


@settings(max_examples=50, deadline=None)
@given(frames(), st.data())
def test_frame_id_tells_any_pixel_and_the_shape(frame: Frame, data: st.DataObject) -> None:
    changed = frame.copy()
    position = tuple(data.draw(st.integers(0, size - 1)) for size in frame.shape)
    changed[position] ^= data.draw(st.integers(1, 255))
    assert frame_id(changed) != frame_id(frame)
    height, width = frame.shape[:2]
    if height != width:
        assert frame_id(frame.reshape(width, height, 3)) != frame_id(frame)


def test_jpeg_is_close_and_decodes_like_pillow() -> None:
    y, x = np.mgrid[0:96, 0:128]
    frame = np.stack([y * 2, x, (x + y) // 2], axis=2).astype(np.uint8)
    data = encode_jpeg(frame)
    pixels = decode(data)
    np.testing.assert_array_equal(pixels, with_pillow(data))
    assert np.abs(pixels.astype(int) - frame).max() <= 12 and len(encode_jpeg(frame, quality=50)) < len(data)


def test_decode_gives_rgb_for_every_mode() -> None:
    for mode in ("L", "LA", "P", "RGBA", "1"):
        buffer = io.BytesIO()
        Image.new("RGB", (5, 4), (255, 255, 255)).convert(mode).save(buffer, "PNG")
        np.testing.assert_array_equal(decode(buffer.getvalue()), np.full((4, 5, 3), 255, np.uint8))


def test_hostile_bytes_raise_only_the_typed_error() -> None:
    good = encode_png(np.random.default_rng(1).integers(0, 9, (12, 12, 3), dtype=np.uint8))
    cases = [good[:n] for n in range(len(good) - 12)]
    cases += [good[:n] + bytes([good[n] ^ bit]) + good[n + 1 :] for n in range(len(good)) for bit in (1, 128)]
    refused = 0
    for data in cases:
        try:
            assert decode(data).shape[2] == 3
        except ImageError:
            refused += 1
    assert refused > len(cases) // 2
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "GIF")
    for data in (b"", b"\x00" * 100, b"<svg/>", buffer.getvalue(), good[: len(good) // 2]):
        with pytest.raises(ImageError, match="cannot decode"):
            decode(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [8001, 9500, 20_000, 60_000])
def test_a_picture_that_is_too_large_is_refused_before_it_is_decoded(side: int) -> None:
    assert side * side > MAX_PIXELS
    header = side.to_bytes(4, "big") * 2 + b"\x08\x02\x00\x00\x00"
    chunk = b"IHDR" + header
    rest = zlib.compress(bytes(100))
    idat = len(rest).to_bytes(4, "big") + b"IDAT" + rest + zlib.crc32(b"IDAT" + rest).to_bytes(4, "big")
    data = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0d" + chunk + zlib.crc32(chunk).to_bytes(4, "big") + idat
    with pytest.raises(ImageError):
        decode(data)


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
        [[[0, 0, 0]]],
    ],
)
def test_what_is_not_a_frame_is_refused(frame: Frame) -> None:
    for function in (frame_id, encode_png, encode_jpeg):
        with pytest.raises(ImageError, match="expected"):
            function(frame)
