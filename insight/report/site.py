"""``pivot report``: the viewer as a folder of files that opens from disk.

A report is written to a temporary folder and replaces an earlier report at once. Every page is written twice: as JSON
for programs, and, eight per file, as the script that a browser may load from disk. A report does not depend on its time
and place: equal stores of the same folder name give equal files.
"""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, StoreError
from ...core.progress import Reporter
from ...core.storage import Address, LocalStorage
from ...datasets.store.nights import Nights, nights_of, placed_shards
from .contents import CHUNK, FORMAT, Contents, Selection, chunk_name, contents, page_name
from .overview import overview
from .pages import ShardPages
from .plain import json_text, script

MARKER = "report.json"
"""File that marks a folder as a report, which the next report may replace."""

OTHER = "other/"
"""Beginning of the names of a second store's pages."""

STAGE = "report"
_SCRIPTS = "data filters parts export list chart film requests episode level compare overview app"
_PARTS = (
    *("style.css", "pages.css", "requests.css", *(f"{name}.js" for name in _SCRIPTS.split())),
    *("vendor/preact.js", "vendor/preact-hooks.js", "vendor/htm.js"),
    *("vendor/README.md", "vendor/LICENSE-preact", "vendor/LICENSE-htm"),
)
ASSETS = ("index.html", *(f"viewer/{name}" for name in _PARTS))
"""The viewer itself, the same for every store."""


def asset(name: str) -> bytes:
    """Return a file of the viewer itself."""
    return (files(__package__ or "") / "assets" / name).read_bytes()


def write_report(
    root: Address, target: Path, selection: Selection, reporter: Reporter, other: Address | None = None
) -> Contents:
    """Write the report of a finished store or a folder of nights to ``target``, in place of an earlier report.

    Args:
        root: the store or folder.
        target: folder of the report.
        selection: episodes to show.
        reporter: gets the progress.
        other: a second store, whose pages are written below ``other/``, to be shown beside the first one.

    Raises:
        StoreError: a store does not exist, one of its files is torn, or the report cannot be written.
        ConfigError: the selection names what the store does not hold, or ``target`` holds something else.
    """
    check_target(target)
    shown = [_Shown.open(root, "", selection)]
    if other is not None:
        shown.append(_Shown.open(other, OTHER, selection))
    target = target.resolve()
    staged = target.with_name(f".{target.name}.new")
    workplace = LocalStorage(staged)
    with workplace.lock():
        for name in workplace.entries():
            if name != ".lock":
                workplace.delete(name)
        try:
            _Writer(staged).write_all(shown, selection, reporter)
        except BaseException as error:  # also Ctrl-C: an incomplete report is of no use
            shutil.rmtree(staged, ignore_errors=True)
            if isinstance(error, OSError):
                raise StoreError(f"cannot write {target}: {error.strerror}; choose another --out") from error
            raise
        workplace.delete(".lock")
        check_target(target)
        parent = LocalStorage(target.parent)
        parent.replace_folder(staged.name, target.name, parent.folder_id(staged.name))
    return shown[0].listed


@dataclass(frozen=True, slots=True)
class _Shown:
    """A store with its list of episodes; the names of its pages begin with ``prefix``."""

    root: Address
    prefix: str
    nights: Nights
    listed: Contents

    @classmethod
    def open(cls, root: Address, prefix: str, selection: Selection) -> "_Shown":
        nights = nights_of(root)
        return cls(root, prefix, nights, contents(root, nights, selection))


def check_target(target: Path) -> None:
    """Check that a folder may be replaced by a report.

    Raises:
        ConfigError: it holds something else.
    """
    storage = LocalStorage(target)
    if storage.entries() and storage.stat(MARKER) is None:
        raise ConfigError(f"{target} holds files but no {MARKER}, so it is not a report; choose another --out")


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

    def write_all(self, shown: Sequence[_Shown], selection: Selection, reporter: Reporter) -> None:
        for name in ASSETS:
            self.put(name, asset(name))
        reporter.start(STAGE, sum(len(each.listed.places) for each in shown))
        shown[0].listed.record["other"] = shown[1].listed.record["name"] if len(shown) > 1 else None
        for each in shown:
            self.page(f"{each.prefix}contents", json_text(each.listed.record))
            summary, pictures = overview(each.root, each.nights)
            self.page(f"{each.prefix}overview", json_text(summary))
            for name, content in pictures.items():
                self.put(f"{each.prefix}{name}", content)
            self._episodes(each, selection.draw_plans, reporter)
        reporter.finish(STAGE)
        run_id = shown[0].listed.record["run_id"]
        marker = {"report": "pivot", "format": FORMAT, "run_id": run_id, "selection": asdict(selection)}
        self.put(MARKER, (json_text(marker) + "\n").encode("ascii"))

    def _episodes(self, shown: _Shown, draw_plans: bool, reporter: Reporter) -> None:
        chunk: list[str] = []
        listed, prefix = shown.listed, shown.prefix
        for number, (store, shard) in enumerate(placed_shards(shown.nights)):
            episodes = listed.of_shard(number)
            if not episodes:
                continue
            pages = ShardPages(store, shard, number, draw_plans=draw_plans)
            written: set[str] = set()
            for index, row in episodes:
                page = pages.page(row)
                text = json_text(page.record)
                self.put(f"{prefix}{page_name(index)}.json", text.encode("ascii"))
                chunk.append(text)
                if len(chunk) == CHUNK or index == len(listed.places) - 1:
                    name = f"{prefix}{chunk_name(index // CHUNK)}"
                    self.put(f"{name}.js", script(name, f"[{','.join(chunk)}]"))
                    chunk = []
                pictures = page.drawn | {
                    path: partial(pages.picture, int(Path(path).stem))
                    for path in pictures_of(page.record) - page.drawn.keys() - written
                }
                for path, content in pictures.items():
                    encoded = content()
                    if encoded is not None:
                        self.put(f"{prefix}{path}", encoded)
                written |= pictures.keys()
                reporter.advance(STAGE, 1)
            pages.close()


def pictures_of(record: Any) -> set[str]:
    """Return the paths of all pictures that a page names."""
    values = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    paths = {record["src"]} if isinstance(record, dict) and isinstance(record.get("src"), str) else set[str]()
    return paths.union(*map(pictures_of, values))
