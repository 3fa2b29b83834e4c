"""Check that the PNG encoder gives equal bytes for equal pixels in every process, by encoding in many fresh ones.

Such a defect is rare (at another level of ISA-L, one picture in a thousand) and never shows within one process, so an
ordinary test would not find it. ``make test WHAT=encoder`` runs 500 processes with 200 pictures each (collages and
single frames, puzzles and renders) and different garbage in memory. The exit status is 1 if any picture has two
encodings.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from pivot.collage import collage
from pivot.core.images import Frame, encode_png
from rich import print as show
from rich.progress import track

PICTURES = 200


def pictures(count: int) -> Iterator[Frame]:
    """Draw pictures like those of a store: collages of few colours, of smooth renders, and single frames of both."""
    rng = np.random.default_rng(0)
    for number in range(count):
        side = int(rng.choice([96, 192, 256]))
        tiles = int(rng.integers(1, 10))
        if number % 4 == 3:  # a render: smooth, with noise
            ramp = np.add.outer(np.arange(side), np.arange(side))[..., None] * rng.random(3)
            frames = [np.asarray((ramp + rng.integers(0, 9, (side, side, 3))) % 256, np.uint8) for _ in range(tiles)]
        else:
            palette = rng.integers(0, 256, (int(rng.integers(2, 40)), 3), np.uint8)
            cells = rng.integers(0, len(palette), (tiles, side // 8, side // 8))
            frames = list(palette[cells].repeat(8, axis=1).repeat(8, axis=2))
        yield collage(frames) if number % 8 else frames[0]


def digests(count: int) -> list[str]:
    """Encode the pictures in this process; return a digest of each encoding."""
    return [hashlib.sha256(encode_png(picture)).hexdigest() for picture in pictures(count)]


def _in_fresh_process(number: int, count: int) -> list[str]:
    command = [sys.executable, "-m", __spec__.name, "--pictures", str(count), "--one"]
    # glibc fills allocated memory with this byte, so that no code can rely on zeros.
    environment = os.environ | {"MALLOC_PERTURB_": str(number % 256)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()


def main() -> None:
    """Compare the encodings and print how many pictures differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=500)
    parser.add_argument("--pictures", type=int, default=PICTURES)
    parser.add_argument("--one", action="store_true", help="print the digests of this process alone")
    options = parser.parse_args()
    if options.one:
        show(*digests(options.pictures))
        return
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        numbers = range(options.processes)
        runs = threads.map(lambda number: _in_fresh_process(number, options.pictures), numbers)
        encodings = list(track(runs, "encode", total=options.processes))
    differing = sum(len(encodings) - max(Counter(each).values()) for each in zip(*encodings, strict=True))
    show(f"{options.processes * options.pictures} pictures in {options.processes} processes: {differing} differ")
    raise SystemExit(1 if differing else 0)


if __name__ == "__main__":
    main()
