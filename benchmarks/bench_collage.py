"""Collage of nine puzzle frames, composed and encoded: ours against Pillow, with identical decoded pixels.

Both sides start from the frames of a real episode and end with PNG bytes. The baseline pastes the tiles and the labels
with Pillow and saves with Pillow's defaults. It gets the same label pictures ready-made, which favours it. Short runs
of either side alternate, so that a busy machine slows both; medians are compared.
"""

import io
import random
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

import numpy as np
from PIL import Image
from pivot.benchmarks.harness import Row
from pivot.collage import collage, collage_layout, label_strip, step_label
from pivot.collage.compose import PAGE
from pivot.core import plugins
from pivot.core.images import Frame, decode, encode_png
from pivot.environments.base import PivotEnv

TILES = 9
REQUIRED = 15.0
ROUNDS = 12
RUN = 32  # pictures of one side that are measured in a row, as in a pipeline
LEVELS = 4


def rows() -> Iterator[Row]:
    """Yield one row per environment: seconds per collage of both programs, and their ratio."""
    yield from map(_row, ("sokoban", "frozenlake"))


def _row(environment: str) -> Row:
    episodes = [_frames(environment, seed) for seed in range(LEVELS)]
    for frames in episodes:
        np.testing.assert_array_equal(decode(encode_collage(frames)), decode(pillow_collage(frames)))
    ours, baseline = interleaved(
        lambda k: encode_collage(episodes[k % LEVELS]), lambda k: pillow_collage(episodes[k % LEVELS])
    )
    ratio = baseline / ours
    picture = collage(episodes[0])
    size = f"{picture.shape[1]}x{picture.shape[0]}"
    kilobytes = [len(encode(episodes[0])) / 1000 for encode in (encode_collage, pillow_collage)]
    return Row(
        name=f"collage of {TILES} {environment} frames",
        ours=ours,
        baseline=baseline,
        ratio=ratio,
        required=REQUIRED,
        passed=ratio >= REQUIRED,
        note=f"seconds per picture of {size}; {kilobytes[0]:.1f} KB against {kilobytes[1]:.1f} KB",
    )


def _frames(environment: str, seed: int) -> list[Frame]:
    """Return the frames before nine random moves; a lost or solved level starts again."""
    env: PivotEnv = plugins.load("environments", environment)()
    moves = random.Random(seed)
    frame, _ = env.reset(seed=seed)
    frames = [frame]
    while len(frames) < TILES:
        action = env.encode_action(moves.choice(["up", "down", "left", "right"]))
        frame, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            frame, _ = env.reset(seed=seed)
        frames.append(frame)
    return frames


def encode_collage(frames: list[Frame]) -> bytes:
    """Compose and encode with our own code."""
    return encode_png(collage(frames))


def pillow_collage(frames: list[Frame]) -> bytes:
    """Compose and encode with Pillow and its defaults."""
    layout = collage_layout(len(frames), frames[0].shape)
    picture = Image.new("RGB", (layout.width, layout.height), (PAGE, PAGE, PAGE))
    for k, frame in enumerate(frames):
        strip, tile = layout.strip(k), layout.tile(k)
        picture.paste(Image.fromarray(label_strip(step_label(k), layout)), (strip.x, strip.y))
        picture.paste(Image.fromarray(frame), (tile.x, tile.y))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def interleaved(
    ours: Callable[[int], bytes], baseline: Callable[[int], bytes], rounds: int = ROUNDS, run: int = RUN
) -> tuple[float, float]:
    """Return the median seconds of either side over alternating runs."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for function, taken in zip((ours, baseline), seconds, strict=True):
            for k in range(run):
                start = perf_counter()
                function(k)
                taken.append(perf_counter() - start)
    return median(seconds[0]), median(seconds[1])
