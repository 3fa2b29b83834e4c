"""``pivot verify`` finds every planted defect, even if card and manifest were rewritten to cover it.

`make test WHAT=plants` plants all of them (more than 1,300, about an hour); `make test` a few of each environment.
"""

import random

import numpy as np
import pytest
from pivot.core.images import CODECS
from pivot.datasets.verify.compare import picture_problem
from pivot.tests.dataset.containers import CONTAINERS
from pivot.tests.dataset.plants import ENVS, Plant, build_planted, lie
from pivot.tests.dataset.plants_files import KINDS, plants
from pivot.tests.stores import Patient, problems

SAMPLE_SEED = 1


@pytest.fixture(scope="module", params=ENVS)
def patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Patient]:
    """A store of one environment, and a copy that receives the defects."""
    folder = tmp_path_factory.mktemp(request.param)
    copy = Patient(build_planted(folder / "store", request.param), folder / "copy")
    assert problems(copy.root) == []
    return request.param, copy


def _missed(patient: tuple[str, Patient], chosen: list[Plant]) -> list[str]:
    env, copy = patient
    return [plant.name for plant in chosen if not lie(copy, env, plant)]


@pytest.mark.plants
def test_every_lie_is_found(patient: tuple[str, Patient]) -> None:
    assert _missed(patient, plants(patient[0])) == []


def test_a_few_lies_of_each_store_are_found(patient: tuple[str, Patient]) -> None:
    """Catch a verify that misses a kind of defect: kinds alternate, so that the five stores together have each.

    Each store also has a run that names another teacher: texts of a stand-in once passed for texts of an older prompt.
    """
    env, _ = patient
    turn = ENVS.index(env)
    kinds = [kind for number, kind in enumerate(KINDS) if number % len(ENVS) == turn]
    rng = random.Random(f"{SAMPLE_SEED} {env}")
    (teacher,) = [plant for plant in plants(env) if plant.name == "run.json names: a teacher of a folder"]
    assert _missed(patient, [teacher, *(rng.choice(list(kind(env))) for kind in kinds)]) == []


def test_there_are_lies_enough() -> None:
    names = [(env, plant.name) for env in ENVS for plant in plants(env)]
    assert len(set(names)) == len(names) >= 1300


@pytest.mark.parametrize("colours", [4, 100_000])
@pytest.mark.parametrize("kind", CODECS)
def test_a_picture_file_that_a_reader_sees_differently_is_reported(kind: str, colours: int) -> None:
    drawn = np.random.default_rng(0).integers(0, min(colours, 256), (40, 50, 3), np.uint8)
    data = CODECS[kind].encode(drawn)
    assert picture_problem(data, CODECS[kind].encode(drawn)) is None
    for name, change in CONTAINERS.items():
        assert picture_problem(change(data), data), name
    for length in range(0, len(data) - 12, max(1, len(data) // 50)):
        assert picture_problem(data[:length], data)
