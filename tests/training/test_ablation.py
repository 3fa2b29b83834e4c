"""Pictures removed or exchanged: sizes stay, levels change, and lengths stay where possible."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pivot.core.errors import ImageError
from pivot.core.images import decode, encode_jpeg, encode_png
from pivot.training.evaluation.controls import blank, exchanged

rows = st.lists(
    st.tuples(st.sampled_from(("sokoban", "svg")), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=30
)


@given(rows, st.integers(0, 5))
def test_every_record_gets_the_collage_of_another_level(drawn: list[tuple[str, int, int]], seed: int) -> None:
    records = [{"env": env, "num_steps": steps} for env, steps, _ in drawn]
    levels = [f"{env} {level}" for env, _, level in drawn]
    partners = exchanged(records, levels, seed)
    assert partners == exchanged(records, levels, seed)
    for index, partner in enumerate(partners):
        others = [each for each, level in enumerate(levels) if level != levels[index]]
        same_env = [each for each in others if records[each]["env"] == records[index]["env"]]
        same_length = [each for each in same_env if records[each] == records[index]]
        assert partner in (same_length or same_env or [index])


def test_a_large_group_is_exchanged_evenly() -> None:
    records = [{"env": "sokoban", "num_steps": 9}] * 400
    partners = exchanged(records, [str(each // 8) for each in range(400)])
    assert max(partners.count(each) for each in set(partners)) <= 16
    assert len(set(partners)) > 200


@pytest.mark.parametrize("encode", [encode_png, encode_jpeg])
def test_a_blank_picture_keeps_its_size(encode: object) -> None:
    frame = np.random.default_rng(0).integers(0, 255, (30, 40, 3), np.uint8)
    picture = decode(blank(encode(frame)))  # pyright: ignore[reportCallIssue]
    assert picture.shape == frame.shape
    assert not picture.any()


def test_no_picture_is_a_typed_error() -> None:
    with pytest.raises(ImageError, match="cannot read the size"):
        blank(b"no picture")
