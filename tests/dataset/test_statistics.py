"""A damaged footer of a Parquet file is a problem of the store, and never ends the process that looks at it."""

import random
import subprocess
import sys
from pathlib import Path

import pivot
import pytest
from pivot.core.errors import StoreError
from pivot.core.storage import LocalStorage
from pivot.datasets.verify.limits import Limits
from pivot.datasets.verify.statistics import size_problems, statistics_problems
from pivot.tests.stores import schema_of

FLIPS = 600

# In a process of its own, because PyArrow ends the process that asks about some damaged columns.
LOOK = "import sys; from pivot.tests.dataset.test_statistics import look; look(*sys.argv[1:])"


def look(root: str, name: str, seed: str) -> None:
    """Flip a bit of the footer many times, and look at the file after each flip."""
    rng, copy = random.Random(seed), Path(root) / "flipped.parquet"
    whole, schema = (Path(root) / name).read_bytes(), schema_of(name)
    footer = int.from_bytes(whole[-8:-4], "little")
    said = 0
    for _ in range(FLIPS):
        data = bytearray(whole)
        data[-9 - rng.randrange(footer)] ^= 1 << rng.randrange(8)
        copy.write_bytes(data)
        storage = LocalStorage(Path(root))
        try:
            said += bool(
                size_problems(storage, [copy.name], Limits()) or statistics_problems(storage, copy.name, schema.arrow)
            )
        except StoreError:
            said += 1
    print(said)  # noqa: T201 - the answer of this process


@pytest.mark.parametrize("table", ["steps", "labels"])
def test_no_flipped_bit_of_a_footer_ends_the_process(tmp_path: Path, table: str) -> None:
    pivot.build({"environments": {"sokoban": {"tasks": 1}}, "rollouts": 2}, tmp_path)
    (name,) = (path.relative_to(tmp_path).as_posix() for path in (tmp_path / table).rglob("*.parquet"))
    run = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path), name, "1"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) > FLIPS / 20
