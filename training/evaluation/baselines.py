"""Three baselines that read the log alone: the most frequent answer, boosted trees, and guessed levels.

They are fitted on the other split or half of the levels and answer the same items as a model. A model that uses the
pictures has to beat the best of them, which is a slightly optimistic bound, because it is chosen on the tested items.
An episode may also have no pivot: a gate decides that first, boosted trees where they are wanted, else the length.
One answer to both twins is never right, so baselines name their two likeliest steps, one to each; that takes both items
of a pair together, which no model does.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.progress import Reporter
from ...datasets.export.predictors import LoggedFailure, fit_majority, most_common
from ...models.extras import look_for
from ..config import EXTRA
from .boosted_trees import FEWEST, BoostedTrees, Fitting, Judgement, fit_lost, partly_safe
from .controls import locate_reply, safe_reply
from .items import LOGS, QUESTIONS, Benchmark, Item, plugin_of
from .level_posterior import LevelPosterior, objection
from .predictions import Header, Prediction, Predictions
from .scores import score

NAMES = MAJORITY, TREES, POSTERIOR = "majority", "boosted trees", "level posterior"
"""Names of the baselines, in the order of tables."""
Judge = Callable[[LoggedFailure], Judgement]
"""Judges every step of an episode that was lost."""
Episodes = Callable[[str, str], Sequence[Fitting]]
"""Returns the episodes to fit on, by environment and log."""
SILENT = Reporter()


def check_learned() -> None:
    """Check that the package of the boosted trees is installed.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    look_for("sklearn", EXTRA)


def log_of(item: Item) -> LoggedFailure:
    """Return an item as input of a baseline, without its truth."""
    return LoggedFailure.of_record(
        {"env": plugin_of(item.env), "horizon": item.horizon, "actions": item.actions, "action_log": item.action_log}
        | {"pivot_step": 0, "failure_mode": ""}
    )


def fit_most_frequent(episodes: Sequence[Fitting]) -> Judge:
    """Fit the most frequent pivot step, mode, and safe actions where an action was taken."""
    lost = [each for each in episodes if each.lost]
    usual = fit_majority([each.log for each in lost])
    by_action: dict[str, list[tuple[str, ...]]] = {}
    for each, t, actions in partly_safe(lost):
        for key in (each.log.actions[t], ""):
            by_action.setdefault(key, []).append(actions)
    sets = {action: most_common(each) for action, each in by_action.items()}

    def judge(log: LoggedFailure) -> Judgement:
        guess, count = usual(log), len(log.actions)
        safe = [sets.get(action, sets.get("", ())) for action in log.actions]
        return Judgement(np.eye(count)[guess.step], guess.mode, safe=safe)

    return judge


def fit_baselines(episodes: Sequence[Fitting], *, learned: bool = True) -> tuple[dict[str, Judge], dict[str, str]]:
    """Fit the baselines on episodes of one environment; at least one of them was lost.

    Returns:
        The judges by name, and the reason for each baseline that cannot be fitted.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    lost = [each.log for each in episodes if each.lost]
    judges, reasons = {MAJORITY: fit_most_frequent(episodes)}, dict[str, str]()
    if not learned:
        reasons[TREES] = "not wanted"
    elif len(lost) < FEWEST:
        reasons[TREES] = f"found {len(lost)} failures to fit on, expected at least {FEWEST}"
    else:
        judges[TREES] = BoostedTrees(episodes).judge
    if (reason := objection(lost)) is not None:
        reasons[POSTERIOR] = reason
    else:
        judges[POSTERIOR] = LevelPosterior(lost).judge
    return judges, reasons


def fit_gate(episodes: Sequence[Fitting], *, learned: bool) -> Callable[[LoggedFailure], bool]:
    """Fit whether an episode was lost at all.

    Without boosted trees, or with too few episodes of a kind, most episodes of the same length decide; an episode of a
    new length was lost.
    """
    by_trees = fit_lost(episodes) if learned else None
    if by_trees is not None:
        return by_trees
    counts: Counter[int] = Counter()
    for each in episodes:
        counts[len(each.log.actions)] += 1 if each.lost else -1
    return lambda log: counts[len(log.actions)] >= 0


def measure_baselines(
    benchmark: Benchmark, episodes: Episodes, *, learned: bool = True, reporter: Reporter = SILENT
) -> list[dict[str, Any]]:
    """Return the results of the baselines on the items of a benchmark.

    ``not_fitted`` of a result holds the reason for each environment in which a baseline could not be fitted.

    Args:
        benchmark: the items.
        episodes: returns the episodes to fit on.
        learned: whether the boosted trees are fitted, too.
        reporter: receives the progress, in logs.

    Raises:
        PluginError: scikit-learn is not installed.
    """
    first = {*{truth.pair: name for name, truth in benchmark.truths.items()}.values()}
    rows: dict[str, dict[str, Prediction]] = {}
    reasons: dict[str, dict[str, str]] = {}
    reporter.start("baselines", len(benchmark.environments) * len(LOGS))
    for env in benchmark.environments:
        for log in LOGS:
            items = [item for item in benchmark.items.values() if item.env == env and item.log == log]
            fitting = episodes(env, log) if items else ()
            if any(each.lost for each in fitting):
                gate, (judges, missing) = fit_gate(fitting, learned=learned), fit_baselines(fitting, learned=learned)
            else:
                gate, judges = bool, dict[str, Judge]()
                missing = {MAJORITY: "no failure in the other split to fit on"} if items else {}
            for name, reason in missing.items():
                reasons.setdefault(name, {})[env] = reason
            for item in items if judges else ():
                logged = log_of(item)
                is_lost = gate(logged)
                for name, judge in judges.items():
                    answer = answer_of(item, judge(logged), is_lost=is_lost, second=item.item_id not in first)
                    rows.setdefault(name, {})[item.item_id] = answer
            reporter.advance("baselines", 1)
    results: list[dict[str, Any]] = []
    for name in [each for each in NAMES if each in rows or each in reasons]:
        mine = rows.get(name, {})
        complete = [
            env
            for env in benchmark.environments
            if all(item.item_id in mine for item in benchmark.items.values() if item.env == env)
        ]
        header = Header(benchmark.fingerprint, name, benchmark.facts["version"], QUESTIONS, tuple(complete))
        covered = {key: row for key, row in mine.items() if header.covers(benchmark.items[key])}
        result = score(benchmark, Predictions(header, covered))
        results.append(result | {"not_fitted": reasons.get(name, {})})
    return results


def answer_of(item: Item, said: Judgement, *, is_lost: bool, second: bool = False) -> Prediction:
    """Return the answer to an item by a judgement.

    Args:
        item: the item.
        said: the judgement about its log.
        is_lost: whether its episode was lost at all; that of a twin always was.
        second: whether a twin gets the second likeliest step.
    """
    if item.question in ("twin", "locate"):
        ranked = np.argsort(-said.pivot, kind="stable")
        pivot = int(ranked[min(int(second and item.question == "twin"), len(ranked) - 1)])
        mode = said.mode if said.mode in item.choices else item.choices[0]
        said_lost = is_lost or item.question == "twin"
        return Prediction(item.item_id, reply=locate_reply(*((pivot, mode) if said_lost else (None, None))))
    if item.question == "safe":
        chosen = said.safe[item.step or 0] if said.safe else ()
        return Prediction(item.item_id, reply=safe_reply([each for each in chosen if each in item.choices]))
    reach = said.reach if said.reach is not None else np.clip(1 - is_lost * np.cumsum(said.pivot), 0, 1)
    value = reach if said.need is None else -said.need
    return Prediction(
        item.item_id, credit=tuple((-said.pivot).tolist()), value=tuple(value.tolist()), reach=tuple(reach.tolist())
    )
