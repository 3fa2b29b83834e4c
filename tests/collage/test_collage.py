"""Collages, panels and their font: tiles are cut out unchanged, labels are in their strips, other pixels stay equal."""

from hashlib import sha256
from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pivot.collage import (
    Box,
    collage,
    collage_layout,
    episode_tiles,
    grid_shape,
    label_strip,
    make_layout,
    panel,
    step_label,
    tile_box,
)
from pivot.collage.compose import ACCENT, PAGE, STRIP
from pivot.collage.figure import failure_figure
from pivot.collage.font import CHARACTERS, GREYS, draw_text, text_width
from pivot.core.errors import ImageError
from pivot.core.images import Frame, frame_id


def noise(seed: int, height: int, width: int) -> Frame:
    """Return a random frame."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def gradient(seed: int, height: int, width: int) -> Frame:
    """Return a frame that is the same on every machine and NumPy version."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([(y * 3 + seed * 40) % 256, (x * 5) % 256, (y ^ x) % 256], axis=2).astype(np.uint8)


def cut(picture: Frame, box: Box) -> Frame:
    """Return the pixels of a box, which must lie inside the picture."""
    pixels = picture[box.y : box.y + box.height, box.x : box.x + box.width]
    assert pixels.shape[:2] == (box.height, box.width)
    return pixels


@pytest.mark.parametrize("n", range(1, 200))
def test_grid_shape_is_the_equation(n: int) -> None:
    cols, rows = grid_shape(n)
    assert cols == ceil(sqrt(n))
    assert rows == ceil(n / cols)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 30), st.integers(16, 300), st.integers(16, 300))
def test_tiles_and_strips_are_where_the_layout_says(n: int, height: int, width: int) -> None:
    frames = [noise(k, height, width) for k in range(n)]
    originals = [frame.copy() for frame in frames]
    picture = collage(frames)
    layout = collage_layout(n, frames[0].shape)
    assert picture.shape == (layout.height, layout.width, 3)
    seen = np.zeros(picture.shape[:2], np.int64)
    for k in range(n):
        box, strip = tile_box(n, k, frames[0].shape), layout.strip(k)
        np.testing.assert_array_equal(cut(picture, box), originals[k])
        np.testing.assert_array_equal(cut(picture, strip), label_strip(step_label(k), layout))
        assert strip.y + strip.height == box.y
        assert strip.x <= box.x
        assert box.x + box.width <= strip.x + strip.width
        for area in (box, strip):
            seen[area.y : area.y + area.height, area.x : area.x + area.width] += 1
    assert seen.max() == 1
    assert (picture[seen == 0] == PAGE).all()
    for frame, original in zip(frames, originals, strict=True):
        np.testing.assert_array_equal(frame, original)


@pytest.mark.parametrize("size", [16, 96, 192, 256, 300])
def test_layout_follows_the_specification(size: int) -> None:
    layout = collage_layout(9, (size, size))
    assert layout.font_size == max(14, round(0.12 * size))
    assert (layout.cols, layout.rows) == (3, 3)
    if size == 192:
        assert (layout.width, layout.height) == (592, 667)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.data())
def test_panel_shows_the_neighbours_and_black_where_there_is_none(n: int, data: st.DataObject) -> None:
    t = data.draw(st.integers(0, n - 1))
    height, width = data.draw(st.tuples(st.integers(16, 200), st.integers(16, 200)))
    frames = [noise(k, height, width) for k in range(n)]
    picture = panel(frames, t)
    shown = [step_label(step) if 0 <= step < n else "" for step in (t - 1, t, t + 1)]
    layout = make_layout(3, 1, frames[0].shape, tuple(shown))
    assert picture.shape == (layout.height, layout.width, 3)
    for place, step in enumerate((t - 1, t, t + 1)):
        tile, strip = cut(picture, layout.tile(place)), cut(picture, layout.strip(place))
        if 0 <= step < n:
            np.testing.assert_array_equal(tile, frames[step])
            np.testing.assert_array_equal(strip, label_strip(step_label(step), layout))
        else:
            assert not tile.any()
            assert (strip == STRIP).all()


def test_panel_takes_other_labels() -> None:
    frames = [gradient(k, 96, 96) for k in range(3)]
    np.testing.assert_array_equal(panel(frames, 1), panel(frames, 1, ["step 0", "step 1", "step 2"]))
    assert not np.array_equal(panel(frames, 1), panel(frames, 1, ["step 4", "step 5", "step 6"]))


def test_frames_of_different_sizes_sit_unscaled_in_the_middle() -> None:
    small, large = noise(0, 40, 60), noise(1, 100, 80)
    picture = collage([small, large], ["target", "step 0"])
    slots = [tile_box(2, k, (100, 80, 3), ["target", "step 0"]) for k in range(2)]
    np.testing.assert_array_equal(cut(picture, slots[1]), large)
    slot = cut(picture, slots[0]).copy()
    np.testing.assert_array_equal(slot[30:70, 10:70], small)
    slot[30:70, 10:70] = PAGE
    assert (slot == PAGE).all()


def test_highlight_changes_one_strip_and_nothing_else() -> None:
    frames = [gradient(k, 96, 96) for k in range(5)]
    plain, marked = collage(frames), collage(frames, highlight=3)
    strip = collage_layout(5, (96, 96)).strip(3)
    different = (plain != marked).any(axis=2)
    inside = np.zeros_like(different)
    inside[strip.y : strip.y + strip.height, strip.x : strip.x + strip.width] = True
    assert different[inside].all()
    assert not different[~inside].any()
    assert (cut(marked, strip)[0] == ACCENT).all()


def test_the_pixels_of_every_character_are_pinned() -> None:
    """Collages are verified bit by bit, so another pixel is another version of them."""
    digest, sizes = sha256(), (14, 15, 23, 36, 60, 90)
    for size in sizes:
        glyphs = [draw_text(character, size) for character in CHARACTERS]
        assert len({ink.tobytes() for ink in glyphs}) == len(CHARACTERS)
        for character, ink in zip(CHARACTERS, glyphs, strict=True):
            assert ink.shape == (size, text_width(character, size)) and ink.max() <= GREYS
            digest.update(ink.tobytes())
    assert digest.hexdigest() == "95f2272b8ad1815649cb54568133eae7b55462b33e8463f042e95bf1ea6e7b21"


def test_pixels_of_collages_are_pinned() -> None:
    frames = [gradient(k, 96, 112) for k in range(12)]
    assert frame_id(collage(frames)) == "033a1ed5f596454ea447b06e00c2b175f9e9f172d981cf5f5b474576339420fb"
    assert frame_id(panel(frames, 11)) == "3be4f940ac471312e91ec85e1d1e9d72ff860a8b0e3c83b9ddd73682034da6fa"
    assert (
        frame_id(collage(frames[:2], ["target", "step 119"], highlight=1))
        == "ae63e580f8ed1cb6f113dee0e8fc8863fa969b4619cc2c4423b999141aa6eb4b"
    )


@pytest.mark.parametrize("frames", [[], [np.zeros((4, 4), np.uint8)], [np.zeros((4, 4, 3), np.float64)]])
def test_what_is_no_frame_is_refused(frames: list[Frame]) -> None:
    with pytest.raises(ImageError, match="expected"):
        collage(frames)
    with pytest.raises(ImageError, match="expected"):
        panel(frames, 0)


def test_a_picture_that_would_fill_the_memory_is_refused() -> None:
    """Nine frames of 8,000 x 8,000 pixels could be read one by one, but would be gigabytes together."""
    wide = np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (8_000, 8_000, 3))
    with pytest.raises(ImageError, match="expected at most 64000000"):
        collage([noise(0, 20, 20)] * 8 + [wide])
    with pytest.raises(ImageError, match="expected at most 64000000"):
        panel([wide, wide], 0)


def test_arguments_that_do_not_fit_are_refused() -> None:
    frames = [noise(k, 20, 20) for k in range(3)]
    with pytest.raises(ValueError, match="2 labels for 3 frames"):
        collage(frames, ["a", "b"])
    with pytest.raises(ValueError, match="no glyph for 'é'"):
        collage(frames, ["a", "b", "é"])
    for k in (-1, 3):
        with pytest.raises(ValueError, match="outside the 3 frames"):
            collage(frames, highlight=k)
        with pytest.raises(ValueError, match="outside the 3 frames"):
            panel(frames, k)
        with pytest.raises(ValueError, match="outside a collage of 3"):
            tile_box(3, k, (20, 20))
    with pytest.raises(ValueError, match="at least one"):
        grid_shape(0)


def test_frames_inside_of_turns_follow_the_tile_of_their_step() -> None:
    tiles = episode_tiles("observations", "abcd", [["x", "y"], [], ["z"]])
    assert "".join(tiles.frames) == "axybcz"
    assert tiles.labels == ("step 0", "step 0.1", "step 0.2", "step 1", "step 2", "step 2.1")
    assert "".join(tiles.steps) == "abc"


@pytest.mark.parametrize("pivot", [0, 1])
def test_a_figure_marks_the_tile_of_the_pivot_behind_the_target(pivot: int) -> None:
    frames = [noise(seed, 48, 48) for seed in range(4)]
    tiles = episode_tiles("outcomes", frames)
    figure = failure_figure(tiles, "svg", [], ["svg"] * len(tiles.places), pivot_step=pivot)
    marked = collage(tiles.frames, tiles.labels, highlight=tiles.places[pivot])
    assert tiles.places[pivot] == pivot + 1
    height, width, _ = marked.shape
    assert (figure[24 : 24 + height, 24 : 24 + width] == marked).all()
