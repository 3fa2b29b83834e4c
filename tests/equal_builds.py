"""Check that a config gives equal bytes in fresh processes with 1, 2 and 4 workers, with and without Prefect.

Two configs with at least eight shards per stage: five environments with the scripted policy, and SVG with a served
policy that submits hostile documents. All guaranteed bytes are compared with the first store's, and
each store is verified. ``make test WHAT=equal`` runs both; the exit status is 1 if anything differs.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pivot.core.progress import Reporter
from pivot.datasets.verify.verify import verify_store
from pivot.tests.environments.svg.hostile import hostile_documents
from pivot.tests.flow_runs import CLI, clean_environment, config_of, fingerprint
from pivot.tests.models.chat_server import MODEL, ChatServer, key_of, number_of
from rich import print as show

SHARDS = 8
PLAIN = "import json, sys, pivot; pivot.build(json.load(open(sys.argv[1])), sys.argv[2], workers=int(sys.argv[3]))"
WAYS = [("plain", 1), ("plain", 2), ("plain", 4), ("Prefect", 1), ("Prefect", 4)]


def main() -> None:
    """Build, compare, verify, and print the differences."""
    scripted = config_of(dict.fromkeys(("sokoban", "frozenlake", "navigation", "primitiveskill", "svg"), SHARDS))
    hostile = list(hostile_documents("127.0.0.1:9", "/etc/hostname").values())

    def attack(body: dict[str, Any]) -> dict[str, Any]:
        document = hostile[number_of(key_of(body)) % len(hostile)]
        text = document if isinstance(document, str) else document.decode("utf-8", "replace")
        return {"text": f"<think>draw</think><answer>{text}</answer>"}

    with ChatServer(attack, keeps_bodies=False) as server, TemporaryDirectory() as folder:
        service = {"base_url": server.url, "cache": ""}  # the card counts cached answers
        policy = {"name": "openai", "options": {"model": MODEL}, "service": service}
        configs = {"scripted": scripted, "hostile": config_of({"svg": 4 * SHARDS}, policy=policy, tasks_per_shard=4)}
        differ = [name for name, config in configs.items() if not _equal(name, config, Path(folder))]
    raise SystemExit(1 if differ else 0)


def _equal(name: str, config: dict[str, Any], folder: Path) -> bool:
    """Build a config in all ways; return whether all stores are equal and verified."""
    expected: dict[str, str] | None = None
    equal = True
    settings = folder / f"{name}.json"
    settings.write_text(json.dumps(config))
    for number, (way, workers) in enumerate(WAYS):
        root = folder / f"{name}-{number}"
        command = [sys.executable, "-c", PLAIN, str(settings), str(root), str(workers)]
        if way == "Prefect":
            words = ["--config", str(settings), "--out", str(root), "--workers", str(workers), "--prefect"]
            command = [*CLI, "build", *words]
        run = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{name}, {way}, {workers} workers: {run.stderr[-2000:]}")
        prints = fingerprint(root)
        expected = expected or prints
        differing = sorted(path for path in prints | expected if prints.get(path) != expected.get(path))
        problems = verify_store(root, Reporter()).problems
        equal = equal and not differing and not problems
        said = f"{len(prints)} files, {len(differing)} differ {differing[:5]}, {len(problems)} problems {problems[:3]}"
        show(f"{name}, {way}, {workers} workers: {said}")
    return equal


if __name__ == "__main__":
    main()
