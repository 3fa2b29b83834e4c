"""The pages of the viewer by name, made on request; ``pivot view --out`` writes all of them to a folder.

A report is written to a temporary folder and replaces an earlier report at once. Every page is there twice: as JSON
for programs, and, eight per file, as the script that a browser may load from disk. A report does not depend on its time
and place: equal stores of the same folder name give equal files.
"""

import re
import shutil
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from ...core.admission import Names, allowing
from ...core.errors import ConfigError, StoreError
from ...core.images import CODECS
from ...core.progress import Reporter
from ...core.storage import Address, LocalStorage, parse_address
from ...datasets.sql.views import connect, run_query
from ...datasets.store.nights import Nights, nights_of, placed_shards
from ...datasets.store.store import Store
from ..probe.rates import ARM_HEADER, arm_rates, arm_tables
from ..probe.records import SETTINGS_FILE
from ..stats import SUMMARY, in_order
from .contents import CHUNK, FORMAT, Contents, Selection, chunk_name, contents, page_name
from .pages import Page, ShardPages
from .plain import json_text, plain, script


def overview(root: Address, nights: Nights) -> dict[str, Any]:
    """Return the page; its tables are of all nights together.

    Raises:
        StoreError: a file of the store is missing or torn.
    """
    tables = []
    with connect(root, [each.shown for each in SUMMARY], unfinished=True) as connection:
        for each in SUMMARY:
            names, rows = in_order(*run_query(root, connection, each.shown))
            if rows or not each.often_empty:
                tables.append({"view": each.view, "title": each.title, "columns": names, "rows": plain(rows)})
    store = nights.get("")  # each night has a probe of its own
    if store is not None and SETTINGS_FILE in store.listed:
        for env, rows in arm_tables(arm_rates(store)[1]).items():
            tables.append({"view": None, "title": f"{env}: retries of the probe", "columns": ARM_HEADER, "rows": rows})
    return {
        "format": FORMAT,
        **_run(next(iter(nights.values()))),
        "nights": [{"folder": folder.rstrip("/"), **_run(store)} for folder, store in nights.items() if folder],
        "tables": tables,
    }


def _run(store: Store) -> dict[str, Any]:
    """Return the settings behind a store, or behind a night."""
    config = store.config
    return {
        "run_id": store.stored_run_id,
        "policy": {"name": config.policy.name, "stand_in": store.run.policy().is_stand_in},
        "writer": {"name": config.teacher.name, "stand_in": store.run.writer().is_stand_in},
        "label_version": config.label_version,
        "seed": str(config.seed),
        "environments": {name: run.tasks for name, run in config.environments.items()},
        "rollouts": config.rollouts,
    }


MARKER = "report.json"
"""File that marks a folder as a report, which the next report may replace, and lists the other files of it."""

STAGE = "report"
_SCRIPTS = "data filters parts export list chart film requests episode level bars overview start app"
_PARTS = (
    *("mark.svg", "style.css", "pages.css", "requests.css", *(f"{name}.js" for name in _SCRIPTS.split())),
    *("vendor/preact.js", "vendor/preact-hooks.js", "vendor/htm.js"),
    *("vendor/README.md", "vendor/LICENSE-preact", "vendor/LICENSE-htm"),
)
ASSETS = ("index.html", *(f"viewer/{name}" for name in _PARTS))
"""Files of the viewer, the same for every store."""


def asset(name: str) -> bytes:
    """Return a file of the viewer itself."""
    return (files(__package__ or "") / "assets" / name).read_bytes()


def report(
    root: str | Address,
    out: str | Path,
    *,
    environments: Sequence[str] = (),
    failures_only: bool = False,
    limit: int | None = None,
    reporter: Reporter | None = None,
    allow: Names = (),
) -> Contents:
    """Write a store as a site that opens from disk.

    Args:
        root: the finished store, or a folder of nights.
        out: folder of the site; an existing report is replaced.
        environments: environments to show; all by default.
        failures_only: leave out successes and episodes with an error.
        limit: maximum number of episodes per environment, the first ones.
        reporter: receives the progress.
        allow: modules or models that the store names and that may be loaded; without them, pages lack what they
            compute.

    Returns:
        Contents of the site.

    Raises:
        StoreError: the store is missing or unfinished, or the folder cannot be written.
        ConfigError: an environment is not in the store, or the folder holds something else.
    """
    check_target(target := Path(out))
    selection = Selection(tuple(environments), failures_only, limit)
    with allowing(allow):
        site = Site(parse_address(root), selection)
        target = target.resolve()
        staged = target.with_name(f".{target.name}.new")
        workplace = LocalStorage(staged)
        with workplace.lock():
            for name in workplace.entries():
                if name != ".lock":
                    workplace.delete(name)
            try:
                _write_all(site, staged, selection, reporter or Reporter())
            except BaseException as error:  # also Ctrl-C: an incomplete report is of no use
                shutil.rmtree(staged, ignore_errors=True)
                if isinstance(error, OSError):
                    raise StoreError(f"cannot write {target}: {error.strerror}; choose another --out") from error
                raise
            finally:
                site.close()
            workplace.delete(".lock")
            check_target(target)
            parent = LocalStorage(target.parent)
            parent.replace_folder(staged.name, target.name, parent.folder_id(staged.name))
        return site.contents


SHARDS_KEPT = 3
"""Number of shards in memory: the viewed one and its neighbours."""
PAGES_KEPT = 3 * CHUNK


class Site:
    """The files of the viewer of a store."""

    def __init__(self, root: Address, selection: Selection) -> None:
        """List the selected episodes; see :func:`.contents.contents` for errors."""
        self._root, self._nights = root, nights_of(root, unfinished=True)
        self._shards = placed_shards(self._nights)
        self.contents: Contents = contents(root, self._nights, selection)
        self._open: OrderedDict[int, ShardPages] = OrderedDict()
        # A page's pictures are requested one by one.
        self._made = lru_cache(maxsize=PAGES_KEPT)(self._make)
        self._lock = Lock()

    def content(self, name: str) -> bytes | None:
        """Return the file of this name; None where there is none.

        Raises:
            StoreError: a file of the store is missing or torn by now.
        """
        if name in ASSETS:
            return asset(name)
        with self._lock:  # an environment is stepped by one thread at a time
            for pattern, answer in self._answers:
                match = re.fullmatch(pattern, name, re.ASCII)
                if match:
                    content = answer(*match.groups())
                    if content is None or not name.endswith(".js"):
                        return content
                    return script(name.removesuffix(".js"), content.decode("ascii"))
        return None

    def names(self) -> Iterator[str]:
        """Yield the names of all files, those of an episode after its page; pictures may be missing."""
        yield from ASSETS
        yield from (f"{name}.{suffix}" for name in ("contents", "overview") for suffix in ("json", "js"))
        written, count = set[str](), len(self.contents.places)
        for index, place in enumerate(self.contents.places):
            yield f"{page_name(index)}.json"
            if index % CHUNK == CHUNK - 1 or index == count - 1:
                yield f"{chunk_name(index // CHUNK)}.js"
            page, _ = self._made(*place)
            pictures = pictures_of(page.record) | page.drawn.keys()
            yield from sorted(pictures - written)
            written |= pictures

    @cached_property
    def _answers(self) -> list[tuple[str, Callable[..., bytes | None]]]:
        suffix = "|".join(re.escape(each.suffix) for each in CODECS.values())
        return [
            (r"(contents|overview)\.(?:js|json)", self._whole),
            (r"episodes/\d{1,9}/(\d{1,9})\.json", self._page),
            (r"pages/\d{1,9}/(\d{1,9})\.js", self._chunk),
            (rf"frames/(\d{{1,9}})/(\d{{1,9}})\.(?:{suffix})", self._frame),
            (rf"(frames/(\d{{1,9}})/[cprtw](\d{{1,9}})-\d{{1,9}}\.(?:{suffix}))", self._drawn),
        ]

    @cached_property
    def _overview(self) -> str:
        return json_text(overview(self._root, self._nights))

    def _whole(self, name: str) -> bytes:
        return (json_text(self.contents.record) if name == "contents" else self._overview).encode("ascii")

    def _make(self, shard: int, row: int) -> tuple[Page, str]:
        """Return a page and its JSON."""
        page = self._pages(shard).page(row)
        return page, json_text(page.record)

    def _page(self, number: str) -> bytes | None:
        index = int(number)
        places = self.contents.places
        return self._made(*places[index])[1].encode("ascii") if index < len(places) else None

    def _chunk(self, number: str) -> bytes | None:
        places = self.contents.places[int(number) * CHUNK : int(number) * CHUNK + CHUNK]
        return f"[{','.join(self._made(*place)[1] for place in places)}]".encode("ascii") if places else None

    def _frame(self, shard: str, place: str) -> bytes | None:
        shown = any(int(shard) == each for each, _ in self._shown)
        return self._pages(int(shard)).picture(int(place)) if shown else None

    def _drawn(self, name: str, shard: str, row: str) -> bytes | None:
        if (int(shard), int(row)) not in self._shown:
            return None
        draw = self._made(int(shard), int(row))[0].drawn.get(name)
        return None if draw is None else draw()

    @cached_property
    def _shown(self) -> set[tuple[int, int]]:
        return set(self.contents.places)

    def _pages(self, number: int) -> ShardPages:
        if number not in self._open:
            made = ShardPages(*self._shards[number], number)
            self._open[number] = made
            if len(self._open) > SHARDS_KEPT:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return self._open[number]

    def close(self) -> None:
        """Close the environments that rendered pictures."""
        while self._open:
            self._open.popitem()[1].close()


def check_target(target: Path) -> None:
    """Check that a folder may be replaced by a report.

    Raises:
        ConfigError: it holds something else.
    """
    storage = LocalStorage(target)
    if storage.entries() and storage.stat(MARKER) is None:
        raise ConfigError(f"{target} holds files but no {MARKER}, so it is not a report; choose another --out")


def _write_all(site: Site, root: Path, selection: Selection, reporter: Reporter) -> None:
    """Write every file below a folder that is not yet published."""
    reporter.start(STAGE, len(site.contents.places))
    names: list[str] = []
    for name in site.names():
        content = site.content(name)
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
            names.append(name)
        if name.startswith("episodes/"):
            reporter.advance(STAGE, 1)
    reporter.finish(STAGE)
    marker = {"report": "pivot", "format": FORMAT, "run_id": site.contents.record["run_id"]}
    marker |= {"selection": asdict(selection), "files": names}
    (root / MARKER).write_text(json_text(marker) + "\n", encoding="ascii")


def pictures_of(record: Any) -> set[str]:
    """Return the paths of all pictures that a page names."""
    values = record.values() if isinstance(record, dict) else record if isinstance(record, list) else ()
    paths = {record["src"]} if isinstance(record, dict) and isinstance(record.get("src"), str) else set[str]()
    return paths.union(*map(pictures_of, values))
