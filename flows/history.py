"""The records of ``pivot deploy --serve``: one folder for all versions of Prefect, so that upgrades keep the history.

Prefect's database only migrates forward, and a server migrates it at its start. Before a newer Prefect does so, the
database is copied; an older one is refused. Only SQLite is handled here: a database server has backups of its own.
"""

import contextlib
import os
import re
import shutil
import sqlite3
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import InvalidVersion, Version

from ..errors import ConfigError, StoreError
from ..storage import open_storage
from .engines.server import first_writable, has_private_home

DATABASE = "prefect.db"
CONNECTIONS = ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
"""Environment variables that name a different database."""
_MIGRATIONS = Path("server", "database", "_migrations", "versions", "sqlite")
_LINK = re.compile(r"^(down_)?revision\s*(?::[^=]*)?=\s*[\"'](\w+)[\"']", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migrations:
    """The schemas that the installed Prefect knows."""

    revisions: frozenset[str]
    """Names of all revisions."""
    newest: frozenset[str]
    """Revisions that no other one follows."""


def installed_migrations() -> Migrations:
    """Return the revisions of a SQLite database in the installed Prefect, without importing it."""
    spec = find_spec("prefect")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations))) / _MIGRATIONS
    revisions: set[str] = set()
    followed: set[str] = set()
    for name in open_storage(folder).entries():
        if name.endswith(".py"):
            for earlier, revision in _LINK.findall((folder / name).read_text(encoding="utf-8")):
                (followed if earlier else revisions).add(revision)
    return Migrations(frozenset(revisions), frozenset(revisions - followed))


def keep_history() -> Path | None:
    """Choose ``PREFECT_HOME`` and copy the database in it, if the installed Prefect is going to migrate it.

    A folder that the user chose stays. A new folder starts with the newest database of the earlier folders, one per
    version, in the cache.

    Returns:
        The copy of the database; None if none was needed.

    Raises:
        ConfigError: no folder can be written, a newer Prefect has migrated the database, or it cannot be copied.
    """
    earlier = Path(os.environ["PREFECT_HOME"]).parent if has_private_home() else None
    if earlier is not None:
        data = os.environ.get("XDG_DATA_HOME")
        places = [Path(data) / "pivot" / "prefect"] if data else []
        with contextlib.suppress(RuntimeError):  # there may be no home folder
            places.append(Path.home() / ".local" / "share" / "pivot" / "prefect")
        os.environ["PREFECT_HOME"] = str(first_writable([*places, Path(os.environ["PREFECT_HOME"])]))
    if any(name in os.environ for name in CONNECTIONS):
        return None
    home = Path(os.environ["PREFECT_HOME"])
    database = home / DATABASE
    if earlier is not None and not database.exists():
        source = _newest_database(earlier)
        if source is not None:
            _copy(source, database)
    return _copy_before_migration(database) if database.exists() else None


def _copy_before_migration(database: Path) -> Path | None:
    revision = _revision(database)
    migrations = installed_migrations()
    if revision is None or revision in migrations.newest:
        return None
    installed = version("prefect")
    if revision not in migrations.revisions:
        copies = [name for name in open_storage(database.parent).entries() if name.startswith(f"{DATABASE}.before-")]
        journal = f"{DATABASE}-wal and {DATABASE}-shm"
        hint = f"remove {journal} there and move the copy {max(copies)} to {DATABASE}, or " if copies else ""
        raise ConfigError(
            f"{database} has the schema {revision} of a newer Prefect, expected one of Prefect {installed}; install "
            f"the newer one again, {hint}set PREFECT_HOME to a different folder"
        )
    copy = database.with_name(f"{DATABASE}.before-{installed}")
    _copy(database, copy)
    return copy


def _revision(database: Path) -> str | None:
    """Return the revision of a database; None for a database that Prefect has not filled."""
    try:
        with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            rows = opened.execute("select name from sqlite_master where name = 'alembic_version'").fetchall()
            row = opened.execute("select version_num from alembic_version").fetchone() if rows else None
    except sqlite3.Error as error:
        raise ConfigError(
            f"{database} cannot be read ({error}), expected the database of a Prefect server; restore a backup, or "
            "move it away to start without a history"
        ) from error
    return str(row[0]) if row else None


def _newest_database(folder: Path) -> Path | None:
    """Return the database of the newest version, at most the installed one, in folders named ``prefect-VERSION``."""
    versions: list[tuple[Version, Path]] = []
    for name in open_storage(folder).entries():
        path = folder / name / DATABASE
        with contextlib.suppress(InvalidVersion):
            if name.startswith("prefect-") and path.exists():
                versions.append((Version(name.removeprefix("prefect-")), path))
    installed = Version(version("prefect"))
    return max(((made, path) for made, path in versions if made <= installed), default=(None, None))[1]


def _copy(source: Path, target: Path) -> None:
    """Copy a database, also one that a server writes; the copy has its name only when it is complete and on disk."""
    try:
        with TemporaryDirectory(prefix=".copy-", dir=target.parent) as folder:
            snapshot = Path(folder, DATABASE)
            with (
                contextlib.closing(sqlite3.connect(source)) as opened,
                contextlib.closing(sqlite3.connect(snapshot)) as copy,
            ):
                opened.backup(copy)
            with snapshot.open("rb") as content:
                open_storage(target.parent).write(target.name, lambda file: shutil.copyfileobj(content, file))
        target.chmod(0o600)
    except (OSError, sqlite3.Error, StoreError) as error:
        raise ConfigError(
            f"cannot copy {source} to {target} ({error}); make room or set PREFECT_HOME, and run the same command again"
        ) from error


if __name__ == "__main__":  # before a server that a service manager starts
    try:
        keep_history()
    except ConfigError as problem:
        raise SystemExit(str(problem)) from problem
