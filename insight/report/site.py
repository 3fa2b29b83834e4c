"""``pivot report``: the viewer as a folder of files that opens from disk.

It is made beside its place and put there whole, so a report is all of the old or all of the new. Every page is written
twice: as JSON for programs, and, eight to a file, as the script that a browser may load from disk. Nothing in it tells
when or where it was made: equal stores give equal files.
"""

import shutil
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

from ...datasets.parts import Members, members_of, placed_shards
from ...datasets.progress import Reporter
from ...datasets.store import Store
from ...errors import ConfigError, StoreError
from ...storage import Address, LocalStorage
from .contents import CHUNK, FORMAT, Contents, Selection, chunk_name, contents, page_name
from .overview import overview
from .pages import ShardPages
from .plain import json_text, script

MARKER = "report.json"
"""Says that a folder is a report of ours, which the next one may replace."""

STAGE = "report"
_PARTS = (
    *("style.css", "pages.css", "data.js", "parts.js", "list.js", "chart.js", "episode.js", "overview.js", "app.js"),
    *("vendor/preact.js", "vendor/preact-hooks.js", "vendor/htm.js"),
    *("vendor/README.md", "vendor/LICENSE-preact", "vendor/LICENSE-htm"),
)
ASSETS = ("index.html", *(f"viewer/{name}" for name in _PARTS))
"""The viewer itself, the same for every store."""


def asset(name: str) -> bytes:
    """Return a file of the viewer itself."""
    return (files(__package__ or "") / "assets" / name).read_bytes()


def write_report(root: Address, target: Path, selection: Selection, reporter: Reporter) -> Contents:
    """Write the report of a finished store with all its parts to ``target``; a report that is there is replaced.

    Raises:
        StoreError: there is no such store, one of its files is torn, or the report cannot be written.
        ConfigError: the selection names what the store does not hold, or ``target`` holds something else.
    """
    members = members_of(Store.open(root))
    check_target(target)
    listed = contents(members, selection)
    target = target.resolve()
    staged = target.with_name(f".{target.name}.new")
    workplace = LocalStorage(staged)
    with workplace.lock():
        for name in workplace.entries():
            if name != ".lock":
                workplace.delete(name)
        try:
            _Writer(staged).write_all(root, members, listed, selection, reporter)
        except BaseException as error:  # also Ctrl-C: what is half done serves nobody
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError(f"cannot write {target}: {error.strerror}; choose another --out") from error
            raise
        workplace.delete(".lock")
        check_target(target)
        beside = LocalStorage(target.parent)
        beside.replace_folder(staged.name, target.name, beside.folder_id(staged.name))
    return listed


def check_target(target: Path) -> None:
    """Check that a folder may be replaced by a report.

    Raises:
        ConfigError: it holds something else.
    """
    storage = LocalStorage(target)
    if storage.entries() and storage.stat(MARKER) is None:
        raise ConfigError(f"{target} holds files but no {MARKER}, so it is no report and stays; choose another --out")


class _Writer:
    """Writes files below a folder that nobody reads yet."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: set[Path] = set()

    def put(self, name: str, content: bytes) -> None:
        path = self._root / name
        if path.parent not in self._folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folders.add(path.parent)
        path.write_bytes(content)

    def page(self, name: str, text: str) -> None:
        """Write a page as JSON, and as the script of the same name."""
        self.put(f"{name}.json", text.encode("ascii"))
        self.put(f"{name}.js", script(name, text))

    def write_all(
        self, root: Address, members: Members, listed: Contents, selection: Selection, reporter: Reporter
    ) -> None:
        for name in ASSETS:
            self.put(name, asset(name))
        self.page("contents", json_text(listed.record))
        record, pictures = overview(root, members)
        self.page("overview", json_text(record))
        for name, content in pictures.items():
            self.put(name, content)
        reporter.start(STAGE, len(listed.places))
        self._episodes(members, listed, selection.draw_plans, reporter)
        reporter.finish(STAGE)
        run_id = members[""].stored_run_id
        marker = {"report": "pivot", "format": FORMAT, "run_id": run_id, "selection": asdict(selection)}
        self.put(MARKER, (json_text(marker) + "\n").encode("ascii"))

    def _episodes(self, members: Members, listed: Contents, draw_plans: bool, reporter: Reporter) -> None:
        chunk: list[str] = []
        for number, (store, shard) in enumerate(placed_shards(members)):
            episodes = listed.of_shard(number)
            if not episodes:
                continue
            pages = ShardPages(store, shard, number, draw_plans=draw_plans)
            written: set[str] = set()
            for index, row in episodes:
                page = pages.page(row)
                text = json_text(page.record)
                self.put(f"{page_name(index)}.json", text.encode("ascii"))
                chunk.append(text)
                if len(chunk) == CHUNK or index == len(listed.places) - 1:
                    name = chunk_name(index // CHUNK)
                    self.put(f"{name}.js", script(name, f"[{','.join(chunk)}]"))
                    chunk = []
                for path, content in page.drawn.items():
                    self.put(path, content)
                for frame in page.record["frames"]:
                    self._frame(pages, frame["src"], written)
                for frame in (page.record["witness"] or {}).get("frames") or ():
                    if frame["src"] not in page.drawn:
                        self._frame(pages, frame["src"], written)
                reporter.advance(STAGE, 1)
            pages.close()

    def _frame(self, pages: ShardPages, path: str | None, written: set[str]) -> None:
        """Write a stored picture, once a shard."""
        if path is None or path in written:
            return
        written.add(path)
        content = pages.picture(int(Path(path).stem))
        if content is not None:
            self.put(path, content)
