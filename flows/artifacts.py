"""Artifacts of a flow run on Prefect's pages: tables, a picture and links.

Artifacts of one deployment share their keys, so a page lists the artifacts of all its runs. An artifact that cannot be
written is a warning in the log; it never ends a run.
"""

import base64
import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from logging import Logger, LoggerAdapter
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from prefect import get_client
from prefect.client.schemas.actions import ArtifactCreate

from ..core.storage import Address
from ..datasets.export.describe import any_failure
from ..datasets.sql.views import query
from ..datasets.store.store import DATASET_FOLDER, Store
from ..insight.report.plain import plain
from ..insight.stats import SUMMARY
from .metrics import plain_name
from .pipeline import BuildResult

WIDTH = 960
"""Width of a picture in pixels; pages show no more, and the server's database keeps every picture."""
COLOURS = 64
"""Colours of an indexed picture; photographs become JPEGs."""

Log = Logger | LoggerAdapter[Any]
Row = dict[str, Any]


class Artifacts:
    """Puts artifacts on the pages of one flow run."""

    def __init__(self, log: Log, run: str | None, name: str) -> None:
        """Put them on the pages of flow run ``run``, or nowhere for None; their keys end with ``name``."""
        self._log, self._run = log, run
        self._end = plain_name(name)

    @property
    def visible(self) -> bool:
        """Whether anybody can see them."""
        return self._run is not None

    def table(self, what: str, rows: Sequence[Row], description: str) -> None:
        """Show rows of equal columns."""
        self.put(what, "table", json.dumps([plain(row) for row in rows]), description)

    def link(self, what: str, address: str, text: str, description: str) -> None:
        """Show a link."""
        self.put(what, "markdown", f"[{text}]({address})", description)

    @contextlib.contextmanager
    def unharmed(self, what: str) -> Iterator[None]:
        """Log errors of an artifact instead of raising them."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a server may fail in any way, and the run goes on
            self._log.warning("the artifact %s is not shown (%s: %s)", what, type(error).__name__, error)

    def put(self, what: str, kind: str, data: str, description: str) -> None:
        """Show data of a kind that Prefect knows."""
        if self._run is None:
            return
        key = f"pivot-{what}-{self._end}"
        with self.unharmed(what), get_client(sync_client=True) as client:
            client.create_artifact(
                ArtifactCreate(key=key, type=kind, data=data, description=description, flow_run_id=UUID(self._run))
            )


def show_store(artifacts: Artifacts, result: BuildResult) -> None:
    """Show the outcome of a build or relabel: counts, modes, rejects, one labelled failure, and a link to the data."""
    if not artifacts.visible:
        return  # tables and picture would take as long as a shard takes
    root = result.root
    counts = [{"environment": name, **each} for name, each in result.environments.items()]
    artifacts.table("counts", counts, f"Store at {root}")
    with artifacts.unharmed("modes"):
        for what, view in (("modes", "modes"), ("rejects", "reject_kinds")):
            summary = next(each for each in SUMMARY if each.view == view)
            artifacts.table(what, query_rows(root, summary.shown), f"{summary.title} of {root}")
    if any(each["failed"] for each in result.environments.values()):
        with artifacts.unharmed("failure"):
            failure = any_failure(Store.open(root))
            text = f"![{failure.title}]({data_uri(failure.figure())})\n\n`{failure.episode['episode_id']}`"
            artifacts.put("failure", "markdown", text, f"{failure.title}, of {root}")
    address = file_address(root / DATASET_FOLDER)
    artifacts.link("dataset", address, address, f'load_dataset("{root / DATASET_FOLDER}", ENVIRONMENT)')


def query_rows(root: Address, sql: str) -> list[Row]:
    """Return the rows of a query over the views of a store."""
    names, rows = query(root, sql)
    return [dict(zip(names, row, strict=True)) for row in rows]


def usage_of(root: Address) -> dict[str, dict[str, float]]:
    """Return tokens (``prompt``, ``completion``) and ``cost`` of the requests that a store paid for, by role."""
    usage = {role: {"prompt": 0.0, "completion": 0.0, "cost": 0.0} for role in ("student", "teacher")}
    for row in query_rows(root, _USAGE):
        usage[row["role"]] = {name: float(row[name]) for name in ("prompt", "completion", "cost")}
    return usage


_USAGE = """select role, coalesce(sum(prompt_tokens), 0) as prompt, coalesce(sum(completion_tokens), 0) as completion,
coalesce(sum(cost), 0) as cost from calls where not coalesce(cache_hit, false) group by role"""


def file_address(place: Address) -> str:
    """Return the address of a file or folder, for a link."""
    return place.resolve().as_uri() if isinstance(place, Path) else str(place)


def data_uri(picture: NDArray[np.uint8]) -> str:
    """Return a picture, shape (height, width, 3), as a data URI of about ten kilobytes."""
    image = Image.fromarray(picture)
    image.thumbnail((WIDTH, 4 * WIDTH), Image.Resampling.LANCZOS)
    drawn, photographed = io.BytesIO(), io.BytesIO()
    image.quantize(COLOURS).save(drawn, "PNG", optimize=True)
    image.save(photographed, "JPEG", quality=75, optimize=True)
    smallest, kind = min((drawn.getvalue(), "png"), (photographed.getvalue(), "jpeg"), key=lambda each: len(each[0]))
    return f"data:image/{kind};base64,{base64.b64encode(smallest).decode()}"
