"""The dataset card: meaning and origin of the rows, counts, modes, rejects, and a picture of a labelled failure.

Every number is read from the stored tables. The card also names the dataset's configs for the Hugging Face library.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ...core.identity import canonical_json, digest
from ...core.images import encode_png
from ...core.storage import FileRecord
from ...environments.base import Source
from ...labeling.domains import domain_of
from ...labeling.target import PAPER_MODES
from ..store.config import PartConfig, RunConfig
from ..store.parquet import count_rows
from ..store.run import Run
from ..store.schema import DATASET, DATASET_EPISODES, EPISODES, LABELS, STEPS
from ..store.splits import SIDES
from ..store.store import NAMED_FILES, Store
from .describe import find_episode

if TYPE_CHECKING:
    import jinja2

CARD, PICTURE = "README.md", "example.png"
TITLE = "PIVOT failure labels"
TAGS = ["vision-language", "agents", "credit-assignment", "pivot", "synthetic"]
TEMPLATE = Path(__file__).with_name("card_template.md")
PLAIN = "---\n{{ card_data }}\n---\n\n{{ text }}"
"""Template of a card whose text is ready: names from a store are never part of a template, which may run code."""

RowCounts = Mapping[str, Mapping[str, int]]
"""Rows by subfolder of the dataset and split."""


def write_card(store: Store, folder: str, files: Mapping[str, FileRecord]) -> dict[str, FileRecord]:
    """Write ``README.md`` and ``example.png`` into the dataset folder; return their manifest entries.

    ``files`` are the manifest entries of the dataset's Parquet files under ``folder``, and perhaps others.
    """
    made = {}
    picture = example_picture(store)
    if picture is not None:
        path = f"{folder}/{PICTURE}"
        made[path] = store.storage.write_bytes(path, picture)
    text = card_text(store, folder, store.run_record(), files, picture is not None)
    path = f"{folder}/{CARD}"
    made[path] = store.storage.write_bytes(path, text.encode())
    return made


def contents(folder: str, files: Mapping[str, FileRecord]) -> dict[str, dict[str, str]]:
    """Return the digests of a dataset's Parquet files, by subfolder and name."""
    parts: dict[str, dict[str, str]] = {}
    for name, record in sorted(files.items()):
        if name.startswith(f"{folder}/") and name.endswith(".parquet"):
            part, _, file = name.removeprefix(f"{folder}/").partition("/")
            parts.setdefault(part, {})[file] = record.sha256
    return parts


def card_configs(
    environments: Sequence[str], rows: RowCounts, parts: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return the ``configs`` section of a store: ``all`` first and default, then one per environment, then episodes.

    Args:
        environments: names, in order.
        rows: how many rows each subfolder has on each side.
        parts: digests of the files by subfolder and name.
    """
    named: list[tuple[str, dict[str, Sequence[str]], str]] = []
    for name, of in config_parts(environments).items():
        paths: dict[str, Sequence[str]] = {}
        for side in SIDES:
            files = [f"{part}/{file}" for part in of for file in parts.get(part, {}) if file.startswith(f"{side}-")]
            patterns = [f"{part}/{side}-*.parquet" for part in of if rows[part][side]]
            paths[side] = patterns if len(files) > NAMED_FILES else files
        named.append((name, paths, digest({part: dict(parts.get(part, {})) for part in of})))
    return configs_section(named)


def config_parts(environments: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the subfolders of each config of a store."""
    whole = {f"{name}_episodes": [f"{name}_episodes"] for name in environments}
    return {"all": environments, **{name: [name] for name in environments}, **whole}


def configs_section(named: Iterable[tuple[str, Mapping[str, Sequence[str]], str]]) -> list[dict[str, Any]]:
    """Return a ``configs`` section from names, paths by split, and digests of the content.

    Each config names the digest: the library caches by what the card says, so that two stores, or one before and after
    it grew, would otherwise be the same to it. A side without any row has no file and is not listed, nor is a config
    without any: ``load_dataset`` refuses all configs where a pattern of one fits nothing.
    """
    section: list[dict[str, Any]] = []
    for name, paths, content in named:
        files = [{"split": side, "path": list(paths[side])} for side in SIDES if paths.get(side)]
        default = {"default": True} if name == "all" else {}
        if files:
            section.append({"config_name": name, **default, "description": f"content {content}", "data_files": files})
    return section


def rendered(template: str, values: Mapping[str, Any], **head: Any) -> str:
    """Return a card from its Jinja template and the fields of its head."""
    from huggingface_hub import DatasetCardData  # noqa: PLC0415 - takes a tenth of the start of a command

    tasks = ["image-text-to-text", "reinforcement-learning"]
    data = DatasetCardData(task_categories=tasks, tags=TAGS, **head)
    return _compiled(template).render(values, card_data=data.to_yaml()).rstrip() + "\n"


@cache
def _compiled(template: str) -> "jinja2.Template":
    """Return a template of ``huggingface_hub.DatasetCard``, which would compile it for every card."""
    import jinja2  # noqa: PLC0415 - as above

    return jinja2.Template(template)


def card_text(
    store: Store, folder: str, run: Mapping[str, Any], files: Mapping[str, FileRecord], with_picture: bool
) -> str:
    """Return the whole card; ``run`` is the content of ``run.json``, and the card stores its digest."""
    config, environments = store.config, list(store.config.environments)
    rows, terms = row_counts(store, folder), terms_of(store.run)
    parts = (("Policy", config.policy), ("Teacher", config.teacher))
    policy, teacher = store.run.policy(), store.run.writer()
    usage: dict[str, Any] = {"usage": None, "left_out": []}
    if not (policy.is_stand_in and teacher.is_stand_in):
        from ..store.usage import USAGE_HEADER, left_out, usage_rows  # noqa: PLC0415 - most runs have no model

        used = usage_rows(store)
        usage = {"usage": _table(USAGE_HEADER, used) if used else None, "left_out": left_out(store)}
    values = {
        "environments": [(name, env.type.profile.task_description) for name, env in store.run.envs.items()],
        "picture": PICTURE if with_picture else None,
        "config": config,
        "run": run,
        "imported": store.is_imported,
        "run_digest": digest(run),
        "translated": [
            env for env in environments if config.target_vocabulary == "paper" and domain_of(env).paper_modes
        ],
        "paper_modes": " and ".join(PAPER_MODES),
        "solver_settings": [(env, json.dumps(options, sort_keys=True)) for env, options in config.solvers.items()],
        "policy_stands_in": policy.is_stand_in,
        "teacher_stands_in": teacher.is_stand_in,
        "stand_ins": [text for env in store.run.envs.values() for text in env.config.stand_ins],
        "terms": terms,
        "part_settings": [(title, canonical_json(part.options)) for title, part in parts if part.options],
        "settings": json.dumps({n: each.settings for n, each in config.environments.items()}, indent=2, sort_keys=True),
        "columns": DATASET.columns,
        "episode_columns": DATASET_EPISODES.columns,
        **usage,
        **_label_tables(store, rows),
    }
    size, sizes = sum(sum(rows[env].values()) for env in environments), "n<1K 1K<n<10K 10K<n<100K 100K<n<1M 1M<n<10M"
    return rendered(
        TEMPLATE.read_text(encoding="utf-8"),
        values,
        license=terms.licence,
        pretty_name=TITLE,
        size_categories=[sizes.split()[sum(size >= bound for bound in (1_000, 10_000, 100_000, 1_000_000))]],
        configs=card_configs(environments, rows, contents(folder, files)),
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def row_counts(store: Store, folder: str) -> RowCounts:
    """Count the rows of every subfolder of the dataset in each split, from the files' footers."""
    counts: dict[str, dict[str, int]] = {}
    for part in (part for env in store.config.environments for part in (env, f"{env}_episodes")):
        counts[part] = dict.fromkeys(SIDES, 0)
        for name in store.storage.listing(f"{folder}/{part}"):
            side = name.rpartition("/")[2].partition("-")[0]
            if name.endswith(".parquet") and side in SIDES:
                counts[part][side] += count_rows(store.storage, name)
    return counts


def _label_tables(store: Store, rows_of: RowCounts) -> dict[str, Any]:
    """Return the tables of counts, modes, reject reasons, evidence and bounds; None in place of an empty table."""
    shards, config = store.config.shards(), store.config
    labels = pl.concat(  # the environments come from the file names, to avoid a join
        store.scan(LABELS, [shard for shard in shards if shard.env == env]).with_columns(env=pl.lit(env))
        for env in config.environments
    )
    counted = pl.len().alias("records")
    episodes = (
        store.scan(EPISODES)
        .group_by("env")
        .agg(
            pl.struct("task_id", "goal_idx", "eval_set").n_unique().alias("tasks"),
            pl.len().alias("episodes"),
            pl.col("failed").eq(False).sum().alias("succeeded"),
            pl.col("failed").sum().alias("failed"),
        )
    )
    judged = labels.group_by("env").agg(pl.col("accepted").sum(), pl.col("accepted").not_().sum().alias("rejected"))
    by_env = {row["env"]: row for row in episodes.join(judged, on="env", how="left").collect().to_dicts()}
    counts = [
        [
            *(env, row["tasks"], row["episodes"], _percent(row["succeeded"], row["succeeded"] + row["failed"])),
            *(row["failed"], row["accepted"] or 0, row["rejected"] or 0, *(rows_of[env][side] for side in SIDES)),
        ]
        for env, row in ((env, by_env[env]) for env in config.environments if env in by_env)
    ]
    rejects = (
        labels.filter(pl.col("accepted").not_())
        .select(pl.col("reject_reasons").list.eval(pl.element().struct.field("name")).alias("rule"))
        .explode("rule")
        .group_by("rule")
        .len()
        .sort("rule")
    )
    unproved = labels.filter(pl.col("proved").is_null() & pl.col("pivot_step").is_not_null()).group_by("env").len()
    usable = _in_dataset(config)
    modes = (
        labels.filter(usable)
        .group_by("env", "failure_mode")
        .agg(counted, pl.col("pivot_step").mean().alias("mean_pivot"))
        .with_columns(pl.col("records").sum().over("env").alias("all"))
        .sort("env", "failure_mode")
        .collect()
    )
    words = pl.col("evidence").list.join(", ").alias("evidence")
    evidence = labels.filter(usable).group_by("env", words).len().sort("env", "evidence").collect()
    # How often inexact certificates agree with the better reference that is stored with them.
    fact, later = pl.col("certificate").struct.field, pl.col("pivot_step") - pl.col("reference")
    bounds = (
        labels.filter(usable)
        .with_columns(fact("reference_pivot").alias("reference"), fact("reference_kind").alias("kind"))
        .filter(pl.col("reference").is_not_null())
        .group_by("solver", "kind")
        .agg(counted, later.eq(0).sum().alias("same"), later.mean().alias("delay"))
        .sort("solver", "kind")
        .collect()
        .to_dicts()
    )
    solvers = labels.select("solver", "solver_version").unique().sort("solver").collect()
    header = ["environment", "tasks", "episodes", "success", "failed", "accepted", "rejected", *SIDES]
    tables = {
        "rejects": (["reject reason", "labels"], rejects.collect().rows()),
        "unproved": (["environment", "unproved labels"], unproved.sort("env").collect().rows()),
        "evidence": (["environment", "evidence", "records"], evidence.rows() if store.is_imported else []),
    }
    return {name: _table(head, rows) if rows else None for name, (head, rows) in tables.items()} | {
        "counts": _table(header, counts),
        "modes": _table(
            ["environment", "mode", "records", "share", "mean pivot step"],
            [[env, mode, n, _percent(n, whole), f"{mean:.2f}"] for env, mode, n, mean, whole in modes.iter_rows()],
        ),
        "bounds": [{**row, "share": _percent(row["same"], row["records"])} for row in bounds],
        "solvers": ", ".join(f"`{name}` {version}" for name, version in solvers.iter_rows()),
    }


def _in_dataset(config: RunConfig) -> pl.Expr:
    """Return whether a label is a record of the dataset."""
    return pl.col("accepted") & (pl.col("infeasible_at_start").not_() | pl.lit(config.include_infeasible))


DRAWN_FROM = 4_096
"""Number of episodes per environment among which the example is chosen; a larger sample finds no livelier one."""


def example_picture(store: Store) -> bytes | None:
    """Draw the labelled failure with the most distinct frames, preferring a pivot in the middle of the episode."""
    shards = [shard for shard in store.config.shards() if shard.first * store.config.rollouts < DRAWN_FROM]
    labels, steps = (store.scan(schema, shards) for schema in (LABELS, STEPS))
    liveliness = steps.group_by("episode_id").agg(pl.col("frame_id").n_unique().alias("distinct"), pl.len())
    best = (
        labels.filter(_in_dataset(store.config))
        .join(liveliness, on="episode_id")
        .with_columns((pl.col("pivot_step") - (pl.col("len") - 1) / 2).abs().alias("off_centre"))
        .sort(pl.col("failure_mode").eq("deadlock"), "distinct", -pl.col("off_centre"), "episode_id", descending=True)
        .select("episode_id")
        .head(1)
        .collect()
    )
    return None if best.is_empty() else encode_png(find_episode(store, best.item(), shards).figure())


# The licence: that of the pipeline for rows that it generates by itself. Everything else has an owner: an environment
# lists the levels and pictures that others made, and the text of a model belongs under the model's terms. A licence
# that nobody stated is *unknown*, never assumed; ``--license`` states it.

OWN = "apache-2.0"
"""Licence of generated data."""
UNKNOWN, SEVERAL = "unknown", "other"
"""Hugging Face's words for data whose terms are not known, and for terms of several kinds."""
PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc0-1.0"})
"""Licences of sources that may be combined with data under our own licence, as long as they are named."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The licence of a dataset and its sources."""

    licence: str
    """An id of the Hugging Face hub."""
    stated: bool
    """Whether a person stated it."""
    sources: tuple[tuple[str, Source], ...]
    """Sources that the pipeline did not generate: their place in the dataset, and their description."""

    open_questions: bool
    """Whether the terms of a source are unknown."""


def terms_of(run: Run) -> Terms:
    """Return the terms of the dataset of a run."""
    sources = [(name, source) for name, env in run.envs.items() for source in env.config.sources]
    if not run.policy().is_stand_in:
        sources.append(("replies", _written("replies", run.config.policy)))
    if not run.writer().is_stand_in:
        sources.append(("guidance", _written("guidance, and with it the answers to learn", run.config.teacher)))
    licences = {source.licence for _, source in sources}
    derived = UNKNOWN if None in licences else OWN if licences <= PERMISSIVE else SEVERAL
    return Terms(run.config.license or derived, bool(run.config.license), tuple(sources), None in licences)


def _written(what: str, part: PartConfig) -> Source:
    model = part.options.get("model")
    by = f"the model `{model}`" if model else f"`{part.name}`"
    return Source(f"{what} written by {by}, under its terms of use", None)
