"""The generated pages: ``python docs/assets/reference_pages.py`` rewrites them from the models of settings and tables.

Each setting of ``docs/reference/configuration.md`` is described once: a later section with it only names it. The tables
and views follow the marker in ``docs/reference/store.md``.
"""

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
from pivot.cli.settings_help import settings_rows
from pivot.core import plugins
from pivot.datasets.sql.database import DERIVED
from pivot.datasets.sql.views import VIEWS
from pivot.datasets.store.config import EnvRun, PartConfig, RunConfig
from pivot.datasets.store.imports import IMPORTS
from pivot.datasets.store.schema import (
    CALLS,
    CERTIFICATE,
    DATASET,
    DATASET_EPISODES,
    IMAGE,
    LABELS,
    MESSAGES,
    PROMPTS,
    STORE_TABLES,
    Column,
    TableSchema,
    columns_of,
)
from pivot.models.service import default_cache
from pivot.solvers.base import Certificate
from pivot.training.analyzer_sft.config import SftConfig
from pivot.training.policy_rl.config import RlConfig
from pydantic import BaseModel

ALL_TABLES = (*STORE_TABLES, IMPORTS, LABELS, DATASET, DATASET_EPISODES)
PAGES = Path(__file__).resolve().parents[1] / "reference"
VARIABLES = "## Environment variables\n"
"""First line of the section of ``configuration.md`` that is written by hand."""

_HEAD = """# Configuration

<!-- This page is made by: make docs; only the last section is written by hand -->

For users who look up a setting. Afterwards you know every setting with its type and default, and how to set it. What an
option sets can also be set by its key in a YAML, TOML or JSON file: `--config FILE`. The option wins. The resolved
config of a run is in `run.json` of its store; to reuse it: `pivot build --config DIR/run.json --out COPY`. On the
command line:

| what | option | example |
|---|---|---|
| setting of an environment | `--set ENV.KEY=VALUE` | `--set sokoban.boxes=2` |
| setting of a solver | `--solver ENV.KEY=VALUE` | `--solver navigation.threshold=1.0` |
| field of a run | an option of its own | `--rollouts 8`, `--seed 1`, `--split episode` |
| setting of a format | `--option KEY=VALUE` of `pivot import` | `--option step=0.3` |
| option or service of a model | an option of its own | `--model NAME`, `--writer-model NAME`, `--base-url URL` |

Values are JSON or text. This page has the first statement about each setting, once; `pivot doctor NAME`, also of
third-party plugins, and `pivot COMMAND --help` say more.
"""


_FIRST = re.compile(r"[;.]\s+(?=[A-Za-z`(])|\.$")
"""Where the first statement of a help text ends; the page shows that statement, ``--help`` the whole text."""


class Page:
    """The page of the settings while it is written."""

    def __init__(self) -> None:
        self.lines = [_HEAD]
        self._homes: dict[tuple[str, str], tuple[str, str]] = {}
        """Section and default of each setting that is described, by key and meaning."""
        self._keys: dict[str, set[str]] = {}
        """Settings that each section describes."""

    def section(self, heading: str, kind: type[BaseModel], text: str = "") -> None:
        """Add a section with the settings of a model; nothing for a model without settings."""
        if not kind.model_fields:
            return
        self.lines += [f"{heading}\n", *([f"{text}\n"] if text else [])]
        title, again, described = heading.lstrip("# "), dict[str, list[str]](), list[str]()
        for key, type_, default, meaning in settings_rows(kind):
            shown = default.replace(default_cache(), "~/.cache/pivot/calls.sqlite")
            first = _FIRST.split(meaning.replace("``", "`"))[0]
            home, before = self._homes.setdefault((key, first), (title, default))
            if home == title:
                value = "" if shown in ("null", '""', "{}", "[]") else shown if shown == "required" else f"`{shown}`"
                about = ["" if type_ == "true or false" else type_.removeprefix(" or ").replace(" or null", ""), value]
                described.append(f"- `{key}` ({', '.join(filter(None, about))}): {first}.")
                self._keys.setdefault(title, set()).add(f"`{key}`")
            else:
                again.setdefault(home, []).append(f"`{key}`" + (f" (`{shown}`)" if default != before else ""))
        self.lines += ["\n".join(described) + "\n"] if described else []
        for home, keys in again.items():
            missing = sorted(self._keys[home] - set(keys))
            names = ", ".join(keys)
            if set(keys) <= self._keys[home] and len(missing) < len(keys) / 4:
                names = "all" + (f" but {', '.join(missing)}" if missing else "")
            self.lines.append(f"As for {home}: {names}.\n")


def configuration(page: str) -> str:
    """Return the page of the settings rewritten; its last section, the environment variables, is written by hand."""
    made = Page()
    made.section("## A run", RunConfig, "`config` of `run.json`; from Python the first argument of `pivot.build`.")
    made.section("### An entry of environments", EnvRun)
    made.section("### policy and teacher", PartConfig)
    made.lines.append("## Environments and their solvers\n")
    for name in _ours("environments"):
        made.section(f"### {name}", plugins.load("environments", name).config_type)
        made.section(f"### solver {name}", plugins.load("solvers", name).config_type)
    made.lines.append("## Models, policies, writers\n\n`options` of a policy or teacher decide the answers:\n")
    for group in ("models", "policies", "writers"):
        for name in _ours(group):
            kind = plugins.load(group, name).config_type
            made.section(f"### {plugins.GROUPS[group].member} {name}", kind)
    made.lines.append("`service` of a policy or teacher does not affect the data:\n")
    for name in _ours("models"):
        made.section(f"### service of {name}", plugins.load("models", name).service_type)
    made.lines.append("## Formats of recorded episodes\n\n`pivot import SOURCE --format NAME --option KEY=VALUE`\n")
    for name in _ours("importers"):
        made.section(f"### format {name}", plugins.load("importers", name).config_type)
    made.section("## Stage I", SftConfig, "`pivot train sft`, and the keys of a recipe.")
    made.section("## Stage II", RlConfig, "`pivot train rl`.")
    return "\n".join([*made.lines, page[page.index(VARIABLES) :]])


def _ours(group: str) -> list[str]:
    return [name for name in plugins.names(group) if plugins.is_ours(group, name)]


# Tables and views

MARKER = "<!-- Everything below is made by: make docs -->\n"

_FOLDERS = {
    LABELS: "`labels/v<N>/<environment>/<shard>.parquet`, N incremented by `pivot relabel`",
    PROMPTS: (
        "`prompts/<environment>/<shard>.parquet`; those of Analyzer and teacher in `<shard>-labels-v<N>.parquet` "
        "in the same folder"
    ),
    CALLS: (
        "`calls/<environment>/<shard>.parquet`; those of a teacher that is a model in `<shard>-labels-v<N>.parquet` "
        "in the same folder"
    ),
    DATASET: "`dataset/<environment>/<side>-<shard>.parquet`",
    DATASET_EPISODES: "`dataset/<environment>_episodes/<side>-<shard>.parquet`",
}

_BASE_VIEWS = {
    "frames": "every frame once",
    "prompts": "every prompt once: those of Student, Analyzer and teacher",
    "calls": "requests to a policy, and to a teacher for the current labels",
    "labels": "in its current version",
}
"""Views of one table each that say more than that they hold all of its shards."""
SHARED = 3
"""A column that this many views have with one meaning is described once, before the views."""


def type_name(kind: pa.DataType) -> str:
    """Name a column type for readers."""
    if kind == IMAGE:
        return "image"
    if kind == MESSAGES:
        return "messages"
    if kind == CERTIFICATE:
        return "certificate"
    if isinstance(kind, pa.ListType):
        return f"list of {type_name(kind.value_type)}"
    if isinstance(kind, pa.StructType):
        return "{" + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind) + "}"
    return {"double": "float64"}.get(str(kind), str(kind))


def _line(column: Column) -> str:
    kind = "class label" if column.labels is not None else type_name(column.type)
    return f"- `{column.name}` ({kind}): {column.doc}"


def _table_section(schema: TableSchema) -> str:
    """Return the section of a table; columns that an earlier table describes are named alone."""
    folder = _FOLDERS.get(schema, f"`{schema.name}/<environment>/<shard>.parquet`")
    earlier = ALL_TABLES[: ALL_TABLES.index(schema)]
    lines: list[str] = []
    described: dict[str, list[str]] = {}
    for column in schema.columns:
        table = next((each.name for each in earlier if column in each.columns), "")
        if table:
            described.setdefault(table, []).append(f"`{column.name}`")
        else:
            lines.append(_line(column))
    also = [f"As in `{table}`: {', '.join(columns)}." for table, columns in described.items()]
    head = f"### {schema.name}\n\n{schema.doc} Files: {folder}."
    return "\n\n".join([head, "\n".join(lines), *also])


def _shared_columns() -> dict[str, str]:
    """Return the columns that mean the same in many views."""
    counted = Counter((name, doc) for view in DERIVED.values() for name, doc in view.columns.items())
    return {name: doc for (name, doc), views in counted.items() if views >= SHARED}


def _view_section(name: str) -> str:
    """Return the section of a derived view without the columns that many views have."""
    view, shared = DERIVED[name], _shared_columns()
    head = f"### View {name}\n\n{view.doc}"
    lines = [f"- `{column}`: {doc}" for column, doc in view.columns.items() if shared.get(column) != doc]
    also = [f"`{column}`" for column, doc in view.columns.items() if shared.get(column) == doc]
    parts = [head, f"Also: {', '.join(also)}." if also else "", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part)


def _base_views() -> str:
    """Return the sections of the views of one table each, and of the columns that many views have."""
    plain = [f"`{name}`" for name in VIEWS if name not in DERIVED and name not in _BASE_VIEWS]
    lines = [f"- `{name}`: {text}." for name, text in _BASE_VIEWS.items()]
    shared = [f"- `{column}`: {doc}" for column, doc in _shared_columns().items()]
    return "\n\n".join(
        [
            f"The views {', '.join(plain)} and the following show all shards of the table of that name:",
            "\n".join(lines),
            "Columns that many views have:",
            "\n".join(shared),
        ]
    )


def reference() -> str:
    """Return the reference of all tables and views, Markdown."""
    certificate = "\n".join(map(_line, columns_of(Certificate)))
    sections = [
        "## Tables",
        *map(_table_section, ALL_TABLES),
        "### The certificate\n\nA struct of `labels` and `dataset`.\n\n" + certificate,
        "## Views",
        _base_views(),
        *(_view_section(name) for name in VIEWS if name in DERIVED),
    ]
    return "\n\n".join(sections) + "\n"


def with_reference(page: str) -> str:
    """Return a page with the text below its marker rewritten."""
    head, _, _ = page.partition(MARKER)
    return f"{head}{MARKER}\n{reference()}"


if __name__ == "__main__":
    for name, rewrite in (("configuration.md", configuration), ("store.md", with_reference)):
        (PAGES / name).write_text(rewrite((PAGES / name).read_text(encoding="utf-8")), encoding="utf-8")
