"""Memory of a large import, and of a line of 1 GB: run by ``make test WHAT=import-scale``."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from pivot.interop.vagen import generated_map

from .recorded import episode

EPISODES = 100_000
SCRIPT = """
import resource, sys
import pivot
result = pivot.import_rollouts(sys.argv[1], sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(result.episodes, len(result.problems), peak)
"""


def _import(source: Path, out: Path) -> tuple[int, int, int]:
    began = os.times()
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT, source, out], check=True, capture_output=True, text=True, cwd=out.parent
    )
    after = os.times()
    seconds = after.children_user + after.children_system - began.children_user - began.children_system
    episodes, problems, peak = map(int, made.stdout.split())
    sys.stderr.write(f"{episodes} episodes, {problems} left out: {peak >> 10} MiB, {seconds:.0f} s of one core\n")
    return episodes, problems, peak


@pytest.mark.long
def test_a_hundred_thousand_episodes_take_less_than_a_gigabyte(tmp_path: Path) -> None:
    rng = random.Random(0)
    levels = [generated_map(4, 0.8, seed) for seed in range(1000)]
    source = tmp_path / "source"
    source.mkdir()
    with (source / "episodes.jsonl").open("w") as file:
        for number in range(EPISODES):
            turns = [{"actions": ["invalid"], "response": "a" * rng.randrange(600)} for _ in range(9)]
            line = {"env": "frozenlake", "env_config": {}, "id": str(number), "turns": turns}
            level = levels[
                0 if number % 20 == 0 else number % 1000
            ]  # one level has five times as many as a shard holds
            file.write(json.dumps({"format": "pivot-episode-1", **line, "initial_state": level}) + "\n")
            if number % 1000 == 500:
                file.write('{"format": "pivot-episode-1", "env": "froz\n')
    episodes, problems, peak = _import(source, tmp_path / "store")
    assert episodes + problems == EPISODES + EPISODES // 1000 and problems == EPISODES // 1000
    assert peak < 1_000_000, f"{peak} KiB"


@pytest.mark.long
def test_a_line_of_a_gigabyte_takes_little_memory(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    good = json.dumps(episode(*["up"] * 4)).encode() + b"\n"
    with (source / "episodes.jsonl").open("wb") as file:
        file.write(good + b'{"x": "')
        for _ in range(1024):
            file.write(b"a" * (1 << 20))
        file.write(b'"}\n' + good)
    episodes, problems, peak = _import(source, tmp_path / "store")
    assert (episodes, problems) == (2, 1)
    assert peak < 500_000, f"{peak} KiB"
