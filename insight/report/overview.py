"""The overview of a store: its settings, the tables of ``pivot stats``, and the pictures of ``pivot plot``."""

import re
from pathlib import Path
from typing import Any

from ...core.errors import PluginError
from ...core.storage import Address
from ...datasets.sql.views import connect, run_query
from ...datasets.store.nights import Nights
from ...datasets.store.store import Store
from ..plots import save_plots
from ..stats import SUMMARY, in_order
from .contents import FORMAT
from .plain import plain

TITLES = {
    "return_ladder": "Returns within groups",
    "modes": "Failure modes",
    "pivot_steps": "Pivot step",
    "slack": "Slack at the pivot",
    "lift": "Lift of the rollback probe",
    "zero_variance": "Zero-variance groups after a retry",
}

_SIZE = re.compile(rb'<svg [^>]*?\b(width|height)="([0-9.]+)pt" [^>]*?\b(width|height)="([0-9.]+)pt"')


def overview(root: Address, nights: Nights) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the page and its pictures, by path; tables and pictures are of all nights together.

    Raises:
        StoreError: a file of the store is missing or torn.
    """
    tables = []
    with connect(root, [each.shown for each in SUMMARY]) as connection:
        for each in SUMMARY:
            names, rows = in_order(*run_query(root, connection, each.shown))
            if rows or not each.often_empty:
                tables.append({"view": each.view, "title": each.title, "columns": names, "rows": plain(rows)})
    try:
        pictures, problem = {f"plots/{name}": data for name, data in save_plots(root, "svg").items()}, None
    except PluginError as error:
        pictures, problem = {}, str(error)
    record = {
        "format": FORMAT,
        **_run(next(iter(nights.values()))),
        "nights": [{"folder": folder.rstrip("/"), **_run(store)} for folder, store in nights.items() if folder],
        "tables": tables,
        "plots": [_plot(path, data) for path, data in pictures.items()],
        "problem": problem,
    }
    return record, pictures


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


def _plot(path: str, picture: bytes) -> dict[str, Any]:
    """Describe a picture with its size, so that the page keeps its layout while the picture loads."""
    name = Path(path).stem
    match = _SIZE.search(picture)
    size = {} if match is None else {match[1].decode(): float(match[2]), match[3].decode(): float(match[4])}
    return {"src": path, "title": TITLES.get(name, name)} | size
