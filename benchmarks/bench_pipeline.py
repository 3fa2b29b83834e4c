"""The whole build on two cores against a straightforward pipeline in one process.

The baseline draws each frame with Pillow, saves each as PNG with Pillow's defaults, searches forward from every state
of a failed episode, pastes and saves collage and panel, and lets ``Dataset.from_generator`` and ``to_parquet`` write.
It does without policy, prompts, reply parsing, filters, whole-episode configs, tables of steps and frames, fsync and
manifest, which ours has. It replays episodes of our own run. Start-up (imports, compilation) is excluded on both
sides: ours is the second build of the process. The sides alternate, and the quickest run of each
counts, because the machine is noisy.
"""

import io
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from pivot.benchmarks.harness import Row
from pivot.core import plugins
from pivot.core.progress import Reporter
from pivot.datasets.store.config import RunConfig, make_config
from pivot.datasets.store.nights import load_store
from pivot.environments.base import PivotEnv
from pivot.flows.engines.local import WorkerPool, worker_pool
from pivot.flows.pipeline import build_store

REQUIRED = 12.0
WORKERS = 2
ROUNDS = 3
BASELINE_EPISODES = 400
ACTIONS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def rows() -> Iterator[Row]:
    """Return the measured ratio; episodes per second on either side, at the default task counts."""
    small, full = _config(16, 16), _config(180, 216)
    with tempfile.TemporaryDirectory() as folder, worker_pool(WORKERS, list(full.environments)) as pool:
        _build(small, Path(folder) / "small", pool)
        episodes = _stored_episodes(Path(folder) / "small")
        ours, baseline, count = 0.0, 0.0, 0
        for number in range(ROUNDS):
            baseline = max(baseline, _baseline_speed(episodes, Path(folder) / f"baseline-{number}"))
            start = perf_counter()
            count = _build(full, Path(folder) / f"full-{number}", pool)
            ours = max(ours, count / (perf_counter() - start))
    yield Row(
        name=f"whole build, {WORKERS} workers",
        ours=ours,
        baseline=baseline,
        ratio=ours / baseline,
        required=REQUIRED,
        passed=ours / baseline >= REQUIRED,
        note=f"episodes per second, best of {ROUNDS}; {count} episodes; baseline {len(episodes)}",
    )


def _config(sokoban: int, frozenlake: int) -> RunConfig:
    tasks = {"sokoban": sokoban, "frozenlake": frozenlake}
    return make_config({"environments": {name: {"tasks": count, "settings": {}} for name, count in tasks.items()}})


def _build(config: RunConfig, root: Path, pool: WorkerPool) -> int:
    result = build_store(root, config, pool, Reporter())
    return sum(counts["episodes"] for counts in result.environments.values())


def _stored_episodes(root: Path) -> list[dict[str, Any]]:
    """Return episodes of both environments in equal shares."""
    stored = load_store(root).episodes.collect().to_dicts()
    halves = [[row for row in stored if row["env"] == env] for env in ("sokoban", "frozenlake")]
    return [row for half in halves for row in half[: BASELINE_EPISODES // 2]]


# The baseline


def _baseline_speed(episodes: list[dict[str, Any]], folder: Path) -> float:
    import datasets  # noqa: PLC0415 - slow to import
    from datasets import Dataset, Features, List, Value  # noqa: PLC0415

    datasets.disable_progress_bars()
    folder.mkdir()
    (folder / "frames").mkdir()
    features = Features(
        {
            "episode_id": Value("string"),
            "images": List(datasets.Image()),
            "panel": datasets.Image(),
            "pivot_step": Value("int32"),
            "actions": List(Value("string")),
        }
    )

    def records() -> Iterator[dict[str, Any]]:
        for episode in episodes:
            record = _baseline_record(episode, folder / "frames")
            if record is not None:
                yield record

    start = perf_counter()
    dataset = Dataset.from_generator(
        records, features=features, cache_dir=str(folder / "cache"), fingerprint=folder.name
    )
    dataset.to_parquet(str(folder / "train.parquet"))  # pyright: ignore[reportAttributeAccessIssue]
    return len(episodes) / (perf_counter() - start)


def _baseline_record(episode: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    env: PivotEnv = plugins.load("environments", episode["env"])()
    env.draw_frames = False
    env.reset(options={"state": episode["initial_state"]})
    states = [env.state_text()]
    for action in episode["actions"]:
        env.step(env.encode_action(action))
        states.append(env.state_text())
    frames = [_draw(episode["env"], state) for state in states]
    for index, frame in enumerate(frames):
        (folder / f"{episode['episode_id']}-{index}.png").write_bytes(_png(frame))
    if not episode["failed"]:
        return None
    pivot = _pivot(episode["env"], states, episode["horizon"])
    tiles = frames[:-1]
    around = [tiles[t] if 0 <= t < len(tiles) else Image.new("RGB", tiles[0].size) for t in range(pivot - 1, pivot + 2)]
    return {
        "episode_id": episode["episode_id"],
        "images": [{"bytes": _png(_paste(tiles, _columns(len(tiles)))), "path": None}],
        "panel": {"bytes": _png(_paste(around, 3)), "path": None},
        "pivot_step": pivot,
        "actions": episode["actions"],
    }


def _columns(count: int) -> int:
    return next(columns for columns in range(1, count + 1) if columns * columns >= count)


def _paste(tiles: list[Image.Image], columns: int) -> Image.Image:
    width, height, strip = tiles[0].width, tiles[0].height, 24
    lines = -(-len(tiles) // columns)
    page = Image.new("RGB", (columns * width, lines * (height + strip)), "white")
    draw = ImageDraw.Draw(page)
    for index, tile in enumerate(tiles):
        x, y = index % columns * width, index // columns * (height + strip)
        draw.text((x + 4, y + 2), f"step {index}", fill="black", font=_FONT)
        page.paste(tile, (x, y + strip))
    return page


_FONT = ImageFont.load_default(18)


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


_SPRITES: dict[tuple[str, str], Image.Image] = {}


def _sprites(env: str) -> dict[str, Image.Image]:
    """Cut the sprites out of rendered rooms, so that both programs paint the same art."""
    rooms = {
        "sokoban": (["#######", "#@ $.*#", "#######"], "#@ $.*", 32),
        "frozenlake": (["SFH", "FFG", "FFF"], "SFHG", 64),
    }
    level, symbols, cell = rooms[env]
    if not any(name == env for name, _ in _SPRITES):
        kind = plugins.load("environments", env)
        game = kind()
        frame, _ = game.reset(options={"state": "\n".join(level)})
        pixels = np.asarray(frame)
        for row, line in enumerate(level):
            for column, symbol in enumerate(line):
                box = pixels[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell]
                _SPRITES.setdefault((env, symbol), Image.fromarray(box.copy()))
    return {symbol: _SPRITES[env, symbol] for symbol in symbols}


def _draw(env: str, state: str) -> Image.Image:
    sprites = _sprites(env)
    lines = [line for line in state.split("\n") if not line.startswith("@ ")]
    cell = next(iter(sprites.values())).width
    page = Image.new("RGB", (len(lines[0]) * cell, len(lines) * cell))
    for row, line in enumerate(lines):
        for column, symbol in enumerate(line):
            page.paste(sprites["@" if symbol == "+" else symbol], (column * cell, row * cell))
    return page


def _pivot(env: str, states: list[str], horizon: int) -> int:
    """First step after which a forward search from the state finds no goal within the turns left."""
    search = _sokoban_reaches if env == "sokoban" else _frozenlake_reaches
    for t, state in enumerate(states[1:]):
        if not search(state, horizon - 1 - t):
            return t
    return len(states) - 2


def _sokoban_reaches(state: str, budget: int) -> bool:
    cells = {(r, c): symbol for r, line in enumerate(state.split("\n")) for c, symbol in enumerate(line)}
    walls = {cell for cell, symbol in cells.items() if symbol == "#"}
    targets = {cell for cell, symbol in cells.items() if symbol in ".+*"}
    boxes = frozenset(cell for cell, symbol in cells.items() if symbol in "$*")
    player = next(cell for cell, symbol in cells.items() if symbol in "@+")
    queue, seen = deque([(player, boxes, 0)]), {(player, boxes)}
    while queue:
        (row, column), boxes, depth = queue.popleft()
        if boxes <= targets:
            return True
        if depth == budget:
            continue
        for down, right in ACTIONS.values():
            there, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
            pushed = boxes
            if there in walls or (there in boxes and (beyond in walls or beyond in boxes)):
                continue
            if there in boxes:
                pushed = boxes - {there} | {beyond}
            if (there, pushed) not in seen:
                seen.add((there, pushed))
                queue.append((there, pushed, depth + 1))
    return False


def _frozenlake_reaches(state: str, budget: int) -> bool:
    lines = state.split("\n")
    position = next(((r, c) for r, line in enumerate(lines) for c, s in enumerate(line) if s == "S"), (0, 0))
    if lines[-1].startswith("@ "):
        row, column = lines.pop()[2:].split()
        position = (int(row), int(column))
    ice = {(r, c): symbol for r, line in enumerate(lines) for c, symbol in enumerate(line) if symbol != "H"}
    queue, seen = deque([(position, 0)] if position in ice else []), {position}
    while queue:
        (row, column), depth = queue.popleft()
        if ice[row, column] == "G":
            return True
        for down, right in ACTIONS.values():
            there = (row + down, column + right)
            if depth < budget and there in ice and there not in seen:
                seen.add(there)
                queue.append((there, depth + 1))
    return False
