"""Check that random draws are uniform and equal those of the first stores."""

import random

import pytest
from pivot.core.identity import below, digest, sample_below


def test_draws_keep_their_values() -> None:
    """Compare 1,320 draws with ``randrange`` and ``sample`` of Python 3.11; a difference changes levels."""
    drawn: list[list[int]] = []
    for seed in range(60):
        rng = random.Random(seed)
        numbers = [below(rng, count) for count in (1, 2, 3, 10, 1000, 2**40)]
        drawn.append([*numbers, *sample_below(rng, 20, 7), *sample_below(rng, 500, 9)])
    assert drawn[7] == [
        0,
        0,
        1,
        0,
        74,
        803563169809,
        18,
        1,
        16,
        6,
        19,
        15,
        17,
        214,
        35,
        123,
        46,
        282,
        217,
        30,
        423,
        289,
    ]
    assert digest(drawn) == "244eaf92c2fc845149c15e933fc15859"


@pytest.mark.parametrize(("count", "size"), [(5, 2), (5, 5), (30, 3)])
def test_a_sample_holds_each_number_once_and_equally_often(count: int, size: int) -> None:
    rng, times = random.Random(0), [0] * count
    for _ in range(2000):
        sample = sample_below(rng, count, size)
        assert len({*sample}) == len(sample) == size
        for number in sample:
            times[number] += 1
    expected = 2000 * size / count
    assert all(abs(number - expected) <= 6 * expected**0.5 for number in times)
