"""Plant every defect, one at a time, in a store per environment, and count how many ``pivot verify`` finds.

``python -m pivot.tests.dataset.planter svg`` does so for one environment; words after ``--kinds`` choose kinds.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from pivot.tests.dataset.plants import CELL_KINDS, ENVS, Plant, build_planted, lie
from pivot.tests.dataset.plants_files import FILE_KINDS
from pivot.tests.stores import Patient, problems

KINDS = (*CELL_KINDS, *FILE_KINDS)


def plants(env: str) -> list[Plant]:
    """Every defect for a store of an environment; their names are distinct."""
    return [plant for kind in KINDS for plant in kind(env)]


def main(words: list[str]) -> None:
    """Plant every defect and print those not found."""
    names, kinds = words, [kind.__name__ for kind in KINDS]
    if "--kinds" in words:
        names, kinds = words[: words.index("--kinds")], words[words.index("--kinds") + 1 :]
    total = missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for env in names or ENVS:
            patient = Patient(build_planted(Path(folder) / env, env), Path(folder) / f"{env} copy")
            assert problems(patient.root) == [], problems(patient.root)
            for plant in (each for kind in KINDS if kind.__name__ in kinds for each in kind(env)):
                try:
                    answer = lie(patient, env, plant)
                except Exception as error:  # noqa: BLE001 - verify must not raise
                    answer = []
                    print(f"RAISED {env} {plant.name}: {type(error).__name__}: {str(error)[:120]}")  # noqa: T201
                total += 1
                missed += not answer
                if not answer:
                    print(f"MISSED {env} {plant.name}", flush=True)  # noqa: T201
            shutil.rmtree(patient.root)
    print(f"{total - missed} of {total} found")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
