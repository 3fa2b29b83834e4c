"""A folder of somebody else, to which tests put links; they check that nothing in it has changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


class Canary:
    """Files that no command may touch, with their recorded names, contents and times."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        """Write the files."""
        self.root = root
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(f"precious {name}".encode())
        self._before = self._state()

    def _state(self) -> dict[str, tuple[str, int]]:
        """Digest and time of change of every file, and what every folder lists with its time."""
        state = {}
        for path in [self.root, *sorted(self.root.rglob("*"))]:
            listed = "\n".join(sorted(each.name for each in path.iterdir())) if path.is_dir() else ""
            content = listed.encode() if path.is_dir() else path.read_bytes()
            state[str(path)] = hashlib.sha256(content).hexdigest(), path.stat().st_mtime_ns
        return state

    def check(self, *, times: bool = True) -> None:
        """Check that no file is changed, missing or new; without ``times``, times of change are not compared."""
        before, now = self._before, self._state()
        assert now.keys() == before.keys()
        assert [now[name] if times else now[name][0] for name in now] == [
            before[name] if times else before[name][0] for name in now
        ]
