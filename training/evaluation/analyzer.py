"""Evaluate any Analyzer on held-out levels of a dataset, beside what the log alone gives away.

Labels and logs of the side are read first, then the cases stream to the model and come back as readings; everything
else is arithmetic on both. The result is JSON data; a table and pictures of it are made in ``report``.
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
from .ablation import Pictures, blank, exchanged
from .baselines import Baselines, baseline_table
from .guidance_checks import GuidanceJudge
from .metrics import Scored, by_mode, by_step, confusion, reliability, shares

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records are evaluated, and what becomes of their pictures."""

    side: str = VALIDATION
    pictures: Pictures = "shown"
    full_length: bool = False
    """Only failures that used every turn: one that ended early tells its last step by its length."""
    limit: int | None = None
    """At most so many records of an environment, drawn by a hash of their ids."""
    seed: int = 0
    """Decides the bootstrap, which collages are exchanged, and the fits of the baselines."""

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is long enough."""
        return not self.full_length or row["num_steps"] == row["horizon"]


@dataclass(frozen=True)
class Labels:
    """Labels and logs of the records that are evaluated, in order, and the failures of the other split."""

    rows: Sequence[Row]
    levels: Sequence[str]
    """Canonical level of each."""
    train: Sequence[LoggedFailure] = field(default=(), repr=False)
    """The failures of the training side that a baseline is fitted on, in the words of the targets."""
    seen: int = 0
    """Records whose level the other side holds, too: a model that was trained on it has seen the room."""

    vocabularies: Mapping[str, Vocabulary] = field(default_factory=dict)
    """Whose words for failure modes the targets of an environment use."""

    @property
    def environments(self) -> list[str]:
        """Names, sorted."""
        return sorted({row["env"] for row in self.rows})

    def places(self, env: str) -> list[int]:
        """Return where the records of an environment stand."""
        return [place for place, row in enumerate(self.rows) if row["env"] == env]

    def baselines(self, env: str, *, learned: bool, seed: int) -> Baselines:
        """Return what the logs of an environment give away of its targets.

        Nothing where the other side has no record of the environment.

        Raises:
            PluginError: what the learned baselines need is not installed.
        """
        train = [each for each in self.train if each.env == env]
        if not train:
            why = "no record of this environment on the other side to fit on; build more levels"
            return Baselines({}, {"all": why})
        vocabulary, mine = self.vocabularies[env], self.places(env)
        test = [_logged(self.rows[place], vocabulary) for place in mine]
        levels = [self.levels[place] for place in mine]

        def word(mode: str) -> str:
            return target_mode(env, mode, vocabulary)

        return baseline_table(train, test, levels, word=word, learned=learned, seed=seed)


def _logged(row: Row, vocabulary: Vocabulary) -> LoggedFailure:
    """Return a failure as its log tells it, its mode in the words of a vocabulary."""
    failure = LoggedFailure.of_record(row)
    return replace(failure, failure_mode=target_mode(failure.env, failure.failure_mode, vocabulary))


def _vocabulary_of(rows: Sequence[Row]) -> Vocabulary:
    """Return whose words for failure modes the targets of some rows use."""
    return "certificate" if all(_target(row).failure_mode == row["failure_mode"] for row in rows) else "paper"


def _target(row: Row) -> Target:
    return parse_target(target_text(row))


def read_labels(records: Records, choice: Choice) -> Labels:
    """Read labels and logs of both sides.

    Raises:
        TrainingError: a side has no record, or a row is none.
    """
    rows = [row for row in records.rows(choice.side, LABEL_COLUMNS) if choice.takes(row)]
    if choice.limit is not None:
        rows = _drawn(rows, choice.limit)
    if not rows:
        kept = " that used every turn" if choice.full_length else ""
        raise TrainingError(
            f"{records.address} has no {choice.side} record of config {records.config!r}{kept}; build more levels, or "
            "choose another --config or --side"
        )
    columns = ("env", "horizon", "num_steps", "actions", "action_log", "pivot_step", "failure_mode", "initial_state")
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


def _drawn(rows: Sequence[Row], limit: int) -> list[Row]:
    def draw(row: Row) -> str:
        return hashlib.sha256(row["episode_id"].encode()).hexdigest()

    kept: set[str] = set()
    for env in {row["env"] for row in rows}:
        mine = sorted((row for row in rows if row["env"] == env), key=draw)
        kept |= {row["episode_id"] for row in mine[:limit]}
    return [row for row in rows if row["episode_id"] in kept]


def cases(records: Records, choice: Choice, labels: Labels) -> Iterator[AnalyzerCase]:
    """Yield what the Analyzer is shown of each record, in the order of ``labels``; pictures as the choice says."""
    wanted = {row["episode_id"] for row in labels.rows}
    partners: dict[str, str] = {}
    pictures: dict[str, bytes] = {}
    if choice.pictures == "exchanged":
        names = [row["episode_id"] for row in labels.rows]
        partners = dict(zip(names, (names[p] for p in exchanged(labels.rows, labels.levels, choice.seed)), strict=True))
        pictures = {
            row["episode_id"]: row["images"][0]["bytes"]
            for row in records.rows(choice.side, ("episode_id", "images"))
            if row["episode_id"] in wanted
        }
    for row in records.rows(choice.side, SHOWN_COLUMNS):
        if row["episode_id"] not in wanted:
            continue
        if choice.pictures == "blank":
            row["images"] = [{"bytes": blank(row["images"][0]["bytes"])}]
        elif choice.pictures == "exchanged":
            row["images"] = [{"bytes": pictures[partners[row["episode_id"]]]}]
        yield case_of_record(row)


def worked_examples(records: Records, count: int) -> dict[str, list[Shot]]:
    """Return the first ``count`` training records of each environment, of as many levels, as worked examples."""
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


def scored(row: Row, level: str, reading: Reading) -> Scored:
    """Put a label beside a reading. The true words are those of the record's target."""
    target = _target(row)
    return Scored(
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
    """Everything that was measured of one Analyzer."""

    summary: dict[str, Any]
    """JSON data: what was evaluated, and the figures by environment."""
    readings: Sequence[Row] = field(repr=False)
    """One JSON row a record: what was true, what was read."""


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
        analyzer: who is asked.
        choice: which records, and what becomes of their pictures.
        learned: whether gradient boosting and the transformer stand beside it, which need the extra ``train``.
        name: what tables call the Analyzer; by default its model.
        on_reading: is told of every reading as it comes.
        labels: labels of the choice; by default they are read here.

    Raises:
        TrainingError: the dataset cannot be used.
        ServerGoneError, ConfigError, PluginError: the model cannot.
    """
    labels = labels or read_labels(records, choice)
    readings = analyzer.read_all(cases(records, choice, labels), on_reading)
    if len(readings) != len(labels.rows):
        raise TrainingError(f"{records.address} changed while it was read; run the same command again")
    results = [scored(*each) for each in zip(labels.rows, labels.levels, readings, strict=True)]
    with GuidanceJudge() as judge:
        guidance = [_guidance(judge, row, reading) for row, reading in zip(labels.rows, readings, strict=True)]
    environments = {}
    for env in labels.environments:
        mine = labels.places(env)
        environments[env] = _figures(
            [results[place] for place in mine],
            [readings[place] for place in mine],
            [guidance[place] for place in mine],
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
    results: Sequence[Scored], readings: Sequence[Reading], guidance: Sequence[Sequence[str] | None], seed: int
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
    """Return the kinds of everything that is wrong with a reading's guidance; None where it gives none."""
    if reading.problem is not None or not reading.failure_reason.strip():
        return None
    return [f"{reason.name}: {reason.kind}" for reason in judge.reasons(row, reading.failure_reason)]


def _reading_row(row: Row, result: Scored, reading: Reading, guidance: Sequence[str] | None) -> Row:
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
