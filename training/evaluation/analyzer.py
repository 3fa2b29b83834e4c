"""Evaluation of an Analyzer on held-out levels of a dataset, next to baselines that read the log alone.

Labels and logs of the split are read first, then the model reads the cases one after the other; the figures are
computed from labels and readings. The result is JSON data; ``report`` makes tables and pictures of it.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ... import plugins
from ...datasets.config import versions
from ...datasets.predictors import LoggedFailure
from ...datasets.split import TRAIN, VALIDATION
from ...errors import TrainingError
from ...labeling.target import Target, parse_target
from ...labeling.vocabulary import Vocabulary, target_mode
from ..analyzer import Analyzer, AnalyzerCase, Reading, Shot, case_of_record
from ..records import LABEL_COLUMNS, SHOWN_COLUMNS, Records, target_text
from .ablation import blank, exchanged
from .baselines import Baselines, baseline_table
from .config import Pictures
from .guidance_checks import GuidanceJudge
from .metrics import ScoredReading, by_mode, by_step, confusion, reliability, shares

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Selection of the evaluated records, and treatment of their pictures."""

    side: str = VALIDATION
    pictures: Pictures = "shown"
    full_length: bool = False
    """Whether only failures that used every turn count: the length of shorter ones reveals their last step."""
    limit: int | None = None
    """Maximum number of records per environment, sampled by a hash of their ids."""
    seed: int = 0
    """Seed of the bootstrap, of the exchange of collages, and of the fits of the baselines."""

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether the selection includes a row, by its length."""
        return not self.full_length or row["num_steps"] == row["horizon"]


@dataclass(frozen=True)
class Labels:
    """Labels and logs of the records that are evaluated, in order, and the failures of the other split."""

    rows: Sequence[Row]
    levels: Sequence[str]
    """Canonical level of each record."""
    train: Sequence[LoggedFailure] = field(default=(), repr=False)
    """Failures of the other split, on which baselines are fitted, in the vocabulary of the targets."""
    seen: int = 0
    """Number of records whose level the other split has, too."""

    vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)
    """Vocabulary of the targets, by environment."""

    @property
    def environments(self) -> list[str]:
        """Names of the environments, sorted."""
        return sorted({row["env"] for row in self.rows})

    def indices(self, env: str) -> list[int]:
        """Return the indices of the records of an environment."""
        return [index for index, row in enumerate(self.rows) if row["env"] == env]

    def baselines(self, env: str, *, learned: bool, seed: int) -> Baselines:
        """Return the shares of the baselines for an environment; none if the other split has no record of it.

        Raises:
            PluginError: a package of the learned baselines is not installed.
        """
        train = [each for each in self.train if each.env == env]
        if not train:
            why = "no record of this environment in the other split to fit on; build more levels"
            return Baselines({}, {"all": why})
        vocabulary, mine = self.vocabularies[env], self.indices(env)
        test = [_logged(self.rows[index], vocabulary) for index in mine]
        levels = [self.levels[index] for index in mine]

        def word(mode: str) -> str:
            return target_mode(env, mode, vocabulary)

        return baseline_table(train, test, levels, word=word, learned=learned, seed=seed)


def _logged(row: Row, vocabulary: Vocabulary) -> LoggedFailure:
    """Return a labelled failure as its log shows it, with the mode's name in a vocabulary."""
    failure = LoggedFailure.of_record(row)
    return replace(failure, failure_mode=target_mode(failure.env, failure.failure_mode, vocabulary))


def _vocabulary_of(rows: Sequence[Row]) -> Vocabulary:
    """Return the vocabulary of the targets of some rows."""
    return "certificate" if all(_target(row).failure_mode == row["failure_mode"] for row in rows) else "paper"


def _target(row: Row) -> Target:
    return parse_target(target_text(row))


def read_labels(records: Records, choice: Choice) -> Labels:
    """Read labels and logs of both splits.

    Raises:
        TrainingError: the split has no record, or a row is invalid.
    """
    rows = [row for row in records.rows(choice.side, LABEL_COLUMNS) if choice.takes(row)]
    if choice.limit is not None:
        rows = _sampled(rows, choice.limit)
    if not rows:
        kept = " that used every turn" if choice.full_length else ""
        raise TrainingError(
            f"{records.address} has no {choice.side} record of config {records.config!r}{kept}; build more levels, or "
            "choose another --env or --side"
        )
    columns = (
        "env",
        "horizon",
        "num_steps",
        "actions",
        "action_log",
        "pivot_step",
        "failure_mode",
        "initial_state",
        "env_config",
    )
    others = list(records.rows(TRAIN if choice.side == VALIDATION else VALIDATION, columns))
    environments = sorted({row["env"] for row in rows})
    named: dict[str, Vocabulary] = {
        env: _vocabulary_of([row for row in rows if row["env"] == env]) for env in environments
    }
    train = [_logged(row, named.get(row["env"], "certificate")) for row in others if choice.takes(row)]
    levels = [canonical_level(row) for row in rows]
    states = {(row["env"], row["initial_state"]): row for row in others}
    elsewhere = {canonical_level(row) for row in states.values()}
    return Labels(rows, levels, train, sum(level in elsewhere for level in levels), named)


def canonical_level(row: Mapping[str, Any]) -> str:
    """Return environment and canonical level of a row."""
    return f"{row['env']} {plugins.load('environments', row['env']).canonical_state(row['initial_state'])}"


def _sampled(rows: Sequence[Row], limit: int) -> list[Row]:
    def hash_of(row: Row) -> str:
        return hashlib.sha256(row["episode_id"].encode()).hexdigest()

    kept: set[str] = set()
    for env in {row["env"] for row in rows}:
        mine = sorted((row for row in rows if row["env"] == env), key=hash_of)
        kept |= {row["episode_id"] for row in mine[:limit]}
    return [row for row in rows if row["episode_id"] in kept]


def cases(records: Records, choice: Choice, labels: Labels) -> Iterator[AnalyzerCase]:
    """Yield the case of each record, in the order of ``labels``, with pictures treated as the choice says."""
    chosen = {row["episode_id"] for row in labels.rows}
    partners: dict[str, str] = {}
    pictures: dict[str, bytes] = {}
    if choice.pictures == "exchanged":
        names = [row["episode_id"] for row in labels.rows]
        partners = dict(zip(names, (names[p] for p in exchanged(labels.rows, labels.levels, choice.seed)), strict=True))
        pictures = {
            row["episode_id"]: row["images"][0]["bytes"]
            for row in records.rows(choice.side, ("episode_id", "images"))
            if row["episode_id"] in chosen
        }
    for row in records.rows(choice.side, SHOWN_COLUMNS):
        if row["episode_id"] not in chosen:
            continue
        if choice.pictures == "blank":
            row["images"] = [{"bytes": blank(row["images"][0]["bytes"])}]
        elif choice.pictures == "exchanged":
            row["images"] = [{"bytes": pictures[partners[row["episode_id"]]]}]
        yield case_of_record(row)


def worked_examples(records: Records, count: int) -> dict[str, list[Shot]]:
    """Return the first ``count`` training records of each environment with different levels, as worked examples."""
    shots: dict[str, list[Shot]] = {}
    levels: set[str] = set()
    if not count:
        return shots
    for row in records.rows(TRAIN, (*SHOWN_COLUMNS, "initial_state")):
        mine = shots.setdefault(row["env"], [])
        level = canonical_level(row)
        if len(mine) < count and level not in levels:
            levels.add(level)
            mine.append(Shot(case_of_record(row), target_text(row)))
    return shots


def score_reading(row: Row, level: str, reading: Reading) -> ScoredReading:
    """Return a reading with its label, in the vocabulary of the record's target."""
    target = _target(row)
    return ScoredReading(
        env=row["env"],
        level=level,
        num_steps=row["num_steps"],
        pivot_step=target.pivot_step,
        failure_mode=target.failure_mode,
        read_step=reading.pivot_step,
        read_mode=reading.failure_mode,
        readable=reading.problem is None,
        probability=reading.step_probability,
    )


@dataclass(frozen=True)
class Evaluation:
    """Figures of one Analyzer."""

    summary: dict[str, Any]
    """JSON data: model, data and settings, and the figures by environment."""
    readings: Sequence[Row] = field(repr=False)
    """One JSON row per record: label and reading."""


def evaluate(
    records: Records,
    analyzer: Analyzer,
    choice: Choice,
    *,
    learned: bool = True,
    name: str = "",
    on_reading: Callable[[Reading], None] | None = None,
    labels: Labels | None = None,
) -> Evaluation:
    """Ask an Analyzer about the records of a choice and measure its readings.

    Args:
        records: the dataset.
        analyzer: the Analyzer.
        choice: selection of records, and treatment of their pictures.
        learned: whether gradient boosting and the transformer are baselines, too; they need the extra ``train``.
        name: name of the Analyzer in tables; by default its model.
        on_reading: receives every reading.
        labels: labels of the choice; by default they are read here.

    Raises:
        TrainingError: the dataset cannot be used.
        ServerGoneError, ConfigError, PluginError: the model cannot be used.
    """
    labels = labels or read_labels(records, choice)
    readings = analyzer.read_all(cases(records, choice, labels), on_reading)
    if len(readings) != len(labels.rows):
        raise TrainingError(f"{records.address} changed while it was read; run the same command again")
    results = [score_reading(*each) for each in zip(labels.rows, labels.levels, readings, strict=True)]
    judge = GuidanceJudge()
    guidance = [_guidance(judge, row, reading) for row, reading in zip(labels.rows, readings, strict=True)]
    environments = {}
    for env in labels.environments:
        mine = labels.indices(env)
        environments[env] = _figures(
            [results[index] for index in mine],
            [readings[index] for index in mine],
            [guidance[index] for index in mine],
            choice.seed,
        )
        baselines = labels.baselines(env, learned=learned, seed=choice.seed).row()
        environments[env] |= {"baselines": baselines["shares"], "baselines_not_fitted": baselines["not_fitted"]}
    summary = {
        "name": name or str(analyzer.config.get("model", analyzer.backend.name)),
        "dataset": records.address,
        "config": records.config,
        "vocabulary": labels.vocabularies,
        "side": choice.side,
        "pictures": choice.pictures,
        "full_length": choice.full_length,
        "records": len(labels.rows),
        "levels": len(set(labels.levels)),
        "records_of_levels_on_both_sides": labels.seen,
        "seed": choice.seed,
        "analyzer": analyzer.config,
        "versions": versions(),
        "environments": environments,
    }
    rows = [_reading_row(*each) for each in zip(labels.rows, results, readings, guidance, strict=True)]
    return Evaluation(summary, rows)


def _figures(
    results: Sequence[ScoredReading], readings: Sequence[Reading], guidance: Sequence[Sequence[str] | None], seed: int
) -> dict[str, Any]:
    chances = reliability(results)
    judged = [reasons for reasons in guidance if reasons is not None]
    return {
        "records": len(results),
        "levels": len({each.level for each in results}),
        "shares": {name: each.row() for name, each in shares(results, seed).items()},
        "by_step": {str(step): each.row() for step, each in by_step(results, seed).items()},
        "by_mode": {
            mode: {name: each.row() for name, each in of_mode.items()}
            for mode, of_mode in by_mode(results, seed).items()
        },
        "confusion": {what: confusion(results, what) for what in ("mode", "step")},
        "reliability": None if chances is None else chances.row(),
        "problems": dict(sorted(Counter(each.problem for each in readings if each.problem is not None).items())),
        "guidance": {
            "texts": len(judged),
            "factual": sum(not reasons for reasons in judged),
            "reasons": dict(sorted(Counter(reason for reasons in judged for reason in reasons).items())),
        },
    }


def _guidance(judge: GuidanceJudge, row: Row, reading: Reading) -> list[str] | None:
    """Return the kinds of all reasons to reject a reading's guidance; None if it has no guidance."""
    if reading.problem is not None or not reading.failure_reason.strip():
        return None
    objection = judge.objection(row, reading.failure_reason)
    return [] if objection is None else [objection.kind]


def _reading_row(row: Row, result: ScoredReading, reading: Reading, guidance: Sequence[str] | None) -> Row:
    return {
        "episode_id": row["episode_id"],
        "env": row["env"],
        "pivot_step": result.pivot_step,
        "failure_mode": result.failure_mode,
        "read_step": result.read_step,
        "read_mode": result.read_mode,
        "problem": reading.problem,
        "detail": reading.detail,
        "step_probability": reading.step_probability,
        "guidance": reading.failure_reason,
        "guidance_problems": guidance,
        "reply": reading.reply,
    }
