"""The dataset card: meaning and origin of the rows, counts, modes, rejects, and a picture of a labelled failure.

Every number is read from the stored tables. The card also names the dataset's configs for the Hugging Face library.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from ...core.identity import canonical_json, digest
from ...core.images import encode_png
from ...core.storage import FileRecord
from ...labeling.episode import PLAYED
from ...labeling.prose import MISSED
from ...labeling.vocabulary import PAPER_MODES, is_translated
from ..store.config import RunConfig
from ..store.schema import DATASET, DATASET_EPISODES, EPISODES, LABELS, STEPS
from ..store.split import SIDES
from ..store.store import NAMED_FILES, Store
from .describe import find_episode
from .licence import terms_of

CARD, PICTURE = "README.md", "example.png"
TITLE = "PIVOT failure labels"
TAGS = ["vision-language", "agents", "credit-assignment", "pivot", "synthetic"]
TEMPLATE = Path(__file__).with_name("card_template.md")

RowCounts = Mapping[str, Mapping[str, int]]
"""Rows by subfolder of the dataset and side of the split."""


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

    def side_paths(side: str, parts_of: Sequence[str]) -> list[str]:
        files = [f"{part}/{name}" for part in parts_of for name in parts.get(part, {}) if name.startswith(f"{side}-")]
        if len(files) > NAMED_FILES:
            return [f"{part}/{side}-*.parquet" for part in parts_of if rows[part][side]]
        return files

    return configs_section(
        (name, {side: side_paths(side, of) for side in SIDES}, digest({part: dict(parts.get(part, {})) for part in of}))
        for name, of in config_parts(environments).items()
    )


def config_parts(environments: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the subfolders of each config of a store."""
    whole = {f"{name}_episodes": [f"{name}_episodes"] for name in environments}
    return {"all": environments, **{name: [name] for name in environments}, **whole}


def configs_section(named: Iterable[tuple[str, Mapping[str, Sequence[str]], str]]) -> list[dict[str, Any]]:
    """Return a ``configs`` section from names, paths by side of the split, and digests of the content.

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
    from huggingface_hub import DatasetCard, DatasetCardData  # noqa: PLC0415 - takes a tenth of the start of a command

    tasks = ["image-text-to-text", "reinforcement-learning"]
    data = DatasetCardData(task_categories=tasks, tags=TAGS, **head)
    return str(DatasetCard.from_template(data, template_str=template, **values)).rstrip() + "\n"


def card_text(
    store: Store,
    folder: str,
    run: Mapping[str, Any],
    files: Mapping[str, FileRecord],
    with_picture: bool,
) -> str:
    """Return the whole card; ``run`` is what ``run.json`` says, bound to the card by its digest."""
    config, environments = store.config, list(store.config.environments)
    rows, terms = row_counts(store, folder), terms_of(store.run)
    settings = {name: chosen.settings for name, chosen in config.environments.items()}
    parts = (("Policy", config.policy), ("Teacher", config.teacher))
    values = {
        "environments": [(name, env.type.profile.task_description) for name, env in store.run.envs.items()],
        "picture": PICTURE if with_picture else None,
        "modes": _modes(store),
        "bounds": _bounds(store),
        "evidence": _evidence(store),
        "config": config,
        "guidance": guidance_line(config),
        "solvers": _solvers(store),
        "run": run,
        "run_digest": digest(run),
        "translated": [env for env in environments if is_translated(env, config.target_vocabulary)],
        "paper_modes": " and ".join(PAPER_MODES),
        "solver_settings": [(env, json.dumps(options, sort_keys=True)) for env, options in config.solvers.items()],
        "stand_ins": "; ".join(_stand_ins(store)),
        "terms": terms,
        "part_settings": [(title, canonical_json(part.options)) for title, part in parts if part.options],
        **_usage(store),
        "settings": json.dumps(settings, indent=2, sort_keys=True),
        "columns": DATASET.columns,
        "episode_columns": DATASET_EPISODES.columns,
        **_counts(store, rows),
    }
    return rendered(
        TEMPLATE.read_text(encoding="utf-8"),
        values,
        license=terms.licence,
        pretty_name=TITLE,
        size_categories=[_size_category(sum(sum(rows[env].values()) for env in environments))],
        configs=card_configs(environments, rows, contents(folder, files)),
    )


def _usage(store: Store) -> dict[str, Any]:
    """Return the table of the requests to models, and what they went without; none for embedded stand-ins."""
    if store.run.policy().is_stand_in and store.run.writer().is_stand_in:
        return {"usage": None, "left_out": []}
    from ..store.usage import USAGE_HEADER, left_out, usage_rows  # noqa: PLC0415 - most runs have no model

    usage = usage_rows(store)
    return {"usage": _table(USAGE_HEADER, usage) if usage else None, "left_out": left_out(store)}


def guidance_line(config: RunConfig) -> str:
    """Say what the guidance is made of, and whether anything proves it."""
    teacher, rest = config.teacher.name, "rejected labels stay in the store with their reasons."
    if config.guidance == "facts":
        return (
            f"teacher `{teacher}` chose among facts that the certificate, the log or the level proves, and the "
            f"sentences were rendered from that choice; {rest}"
        )
    return (
        f"**prose, not proved.** Free texts of teacher `{teacher}` as written, behind a loose factual filter that "
        f"misses much: {MISSED}. Column `guidance_source` says which texts were rendered from facts; "
        f"{rest}"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def row_counts(store: Store, folder: str) -> RowCounts:
    """Count the rows of every subfolder of the dataset on each side of the split, from the files' footers."""

    def rows(name: str) -> int:
        with store.storage.open(name) as stream:
            return pq.read_metadata(stream).num_rows

    def count(part: str) -> dict[str, int]:
        names = [name for name in store.storage.listing(f"{folder}/{part}") if name.endswith(".parquet")]
        return {side: sum(rows(name) for name in names if f"/{side}-" in name) for side in SIDES}

    return {part: count(part) for env in store.config.environments for part in (env, f"{env}_episodes")}


def _size_category(rows: int) -> str:
    """Return the hub's word for a number of rows."""
    bounds = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
    return next((name for bound, name in bounds if rows < bound), "1M<n<10M")


def _counts(store: Store, rows_of: RowCounts) -> dict[str, str | None]:
    """Return the tables of counts: of everything, of unproved labels, of reject reasons; None for an empty one."""
    labels = _labels(store)
    episodes = (
        store.scan(EPISODES)
        .group_by("env")
        .agg(
            pl.col("task_id").n_unique().alias("tasks"),
            pl.len().alias("episodes"),
            (pl.col("failed").eq(False)).sum().alias("succeeded"),
            pl.col("failed").sum().alias("failed"),
        )
    )
    judged = labels.group_by("env").agg(pl.col("accepted").sum(), pl.col("accepted").not_().sum().alias("rejected"))
    joined = episodes.join(judged, on="env", how="left").collect()
    counts = {row["env"]: row for row in joined.to_dicts()}
    rows = []
    for env in filter(counts.get, store.config.environments):
        row, sides = counts[env], rows_of[env]
        rate = _percent(row["succeeded"], row["succeeded"] + row["failed"])
        rows.append(
            [env, row["tasks"], row["episodes"], rate, row["failed"], row["accepted"] or 0, row["rejected"] or 0]
            + [sides[side] for side in SIDES]
        )
    header = ["environment", "tasks", "episodes", "success", "failed", "accepted", "rejected", *SIDES]
    rejects = (
        labels.filter(pl.col("accepted").not_())
        .select(pl.col("reject_reasons").list.eval(pl.element().struct.field("name")).alias("rule"))
        .explode("rule")
        .group_by("rule")
        .len()
        .sort("rule")
        .collect()
    )
    unproved = (
        labels.filter(pl.col("proved").is_null() & pl.col("pivot_step").is_not_null())
        .group_by("env")
        .len()
        .sort("env")
        .collect()
    )
    return {
        "counts": _table(header, rows),
        "unproved": _table(["environment", "unproved labels"], unproved.rows()) if unproved.height else None,
        "rejects": _table(["reject reason", "labels"], rejects.rows()) if rejects.height else None,
    }


def _labels(store: Store) -> pl.LazyFrame:
    """Return the labels of a store with their environments, which come from the file names to avoid a join."""
    shards = store.config.shards()
    return pl.concat(
        store.scan(LABELS, [shard for shard in shards if shard.env == env]).with_columns(env=pl.lit(env))
        for env in store.config.environments
    )


def _modes(store: Store) -> str:
    modes = (
        _labels(store)
        .filter("accepted")
        .group_by("env", "failure_mode")
        .agg(pl.len().alias("records"), pl.col("pivot_step").mean().alias("mean_pivot"))
        .sort("env", "failure_mode")
        .collect()
    )
    totals = {
        row["env"]: row["len"] for row in modes.group_by("env").agg(pl.col("records").sum().alias("len")).to_dicts()
    }
    rows = [
        [
            row["env"],
            row["failure_mode"],
            row["records"],
            _percent(row["records"], totals[row["env"]]),
            f"{row['mean_pivot']:.2f}",
        ]
        for row in modes.to_dicts()
    ]
    return _table(["environment", "mode", "records", "share", "mean pivot step"], rows)


def _evidence(store: Store) -> str | None:
    """Count the records by what confirms them; None if all are rollouts of PIVOT itself."""
    usable = pl.col("accepted") & (pl.col("infeasible_at_start").not_() | pl.lit(store.config.include_infeasible))
    words = pl.col("evidence").list.join(", ").alias("evidence")
    counts = _labels(store).filter(usable).group_by("env", words).len().sort("env", "evidence").collect()
    played = counts["evidence"].is_in([", ".join(PLAYED)]).all()
    return None if played else _table(["environment", "evidence", "records"], counts.rows())


def _bounds(store: Store) -> list[dict[str, Any]]:
    """Return how often inexact certificates agree with the better reference that is stored with them; may be empty."""
    facts = pl.col("certificate").struct
    compared = (
        store.lazy()
        .labels.filter("accepted")
        .with_columns(facts.field("reference_pivot").alias("reference"), facts.field("reference_kind").alias("kind"))
        .filter(pl.col("reference").is_not_null())
        .group_by("solver", "kind")
        .agg(
            pl.len().alias("records"),
            (pl.col("pivot_step") == pl.col("reference")).sum().alias("same"),
            (pl.col("pivot_step") - pl.col("reference")).mean().alias("delay"),
        )
        .sort("solver", "kind")
        .collect()
    )
    return [{**row, "share": _percent(row["same"], row["records"])} for row in compared.to_dicts()]


def _solvers(store: Store) -> str:
    solvers = store.lazy().labels.select("solver", "solver_version").unique().sort("solver").collect()
    return ", ".join(f"`{name}` {version}" for name, version in solvers.iter_rows())


def _stand_ins(store: Store) -> list[str]:
    config, stand_ins = store.config, []
    if store.run.policy().is_stand_in:
        stand_ins.append(f"policy `{config.policy.name}` is embedded and acts in place of a vision-language model")
    if store.run.writer().is_stand_in:
        stand_ins.append(f"teacher `{config.teacher.name}` is embedded and writes in place of a language model")
    return [*stand_ins, *(text for env in store.run.envs.values() for text in env.config.stand_ins)]


DRAWN_FROM = 4_096
"""Episodes of every environment, the first ones, among which the example is chosen: more hold no livelier one."""


def example_picture(store: Store) -> bytes | None:
    """Draw the labelled failure with the most distinct frames, preferring a pivot in the middle of the episode."""
    shards = [shard for shard in store.config.shards() if shard.first * store.config.rollouts < DRAWN_FROM]
    labels, steps = (store.scan(schema, shards) for schema in (LABELS, STEPS))
    usable = pl.col("accepted") & (pl.col("infeasible_at_start").not_() | pl.lit(store.config.include_infeasible))
    liveliness = steps.group_by("episode_id").agg(pl.col("frame_id").n_unique().alias("distinct"), pl.len())
    best = (
        labels.filter(usable)
        .join(liveliness, on="episode_id")
        .with_columns((pl.col("pivot_step") - (pl.col("len") - 1) / 2).abs().alias("off_centre"))
        .sort(pl.col("failure_mode").eq("deadlock"), "distinct", -pl.col("off_centre"), "episode_id", descending=True)
        .select("episode_id")
        .head(1)
        .collect()
    )
    return None if best.is_empty() else encode_png(find_episode(store, best.item(), shards).figure())
