"""One command for a million episodes: its time, memory and files relative to those of ten thousand.

    python -m pivot.benchmarks.scale FOLDER [EPISODES]

Builds both stores as a user does, in separate processes, and leaves them in FOLDER (21 GB for a million). A third
of an hour on four idle cores. Memory is the proportional set size of the whole tree of processes, the Prefect server
included: pages that two processes share count once.
"""

import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROLLOUTS = 8
BASELINE = 10_000
COMMAND = [sys.executable, "-c", "from pivot.cli import main; main()"]
ALLOWED = {"cost": 1.2, "memory": 2e9, "stats": 5.0, "resume": 5.0}


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one command."""

    seconds: float
    processor: float
    """Seconds, of all its processes."""
    memory: float
    """Bytes at most."""


def measured(*arguments: str) -> Cost:
    """Run a command of ours to its end."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, _memory(process.pid))
            time.sleep(1.0)
    if process.returncode:
        raise SystemExit(f"pivot {' '.join(arguments)} ended with status {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.monotonic() - began, processor, peak)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _memory(pid: int) -> int:
    total = 0
    try:
        for process in [root := psutil.Process(pid), *root.children(recursive=True)]:
            try:
                total += process.memory_full_info().pss
            except psutil.Error:  # it has just ended
                continue
    except psutil.Error:
        return 0
    return total


def main(folder: Path, episodes: int) -> int:
    """Print the figures; return 1 if one exceeds its limit."""
    costs: dict[int, Cost] = {}
    for number in (BASELINE, episodes):
        store = folder / str(number)
        costs[number] = measured("build", "frozenlake", "--tasks", str(number // ROLLOUTS), "--out", str(store))
        files = [path for path in store.rglob("*") if path.is_file()]
        size, shards = sum(path.stat().st_size for path in files), len([*store.glob("episodes/*/*.parquet")])
        cost = costs[number]
        _say(
            f"{number:,} episodes: {cost.seconds:.0f} s, {1e3 * cost.processor / number:.2f} ms of processor an "
            f"episode, {cost.memory / 1e9:.2f} GB of memory; {shards} shards, {len(files)} files ("
            f"{len(files) / shards:.1f} a shard), {size / 1e9:.2f} GB ({size / shards / 1e6:.1f} MB a shard, "
            f"{size / number / 1e3:.1f} KB an episode)"
        )
    store, kept = str(folder / str(episodes)), [cost.processor / number for number, cost in costs.items()]
    figures = {
        "cost": kept[1] / kept[0],
        "memory": costs[episodes].memory,
        "stats": measured("stats", store).seconds,
        "resume": measured("build", "--out", store).seconds,
    }
    _say(
        f"an episode costs {figures['cost']:.2f}x one of {BASELINE:,} (allowed {ALLOWED['cost']}x); pivot stats "
        f"{figures['stats']:.1f} s, the same build again {figures['resume']:.1f} s (allowed 5 s each)"
    )
    return int(any(figures[name] > allowed for name, allowed in ALLOWED.items()))


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 1_000_000))
