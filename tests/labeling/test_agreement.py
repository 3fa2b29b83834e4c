"""Log, guidance and certificate never disagree: the label is read from the printed log again, by separate rules.

What a log shows is rounded, so every rule below sees rounded numbers only. The two puzzles log no distance; there the
budgets and flags that guidance names are held against the log.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pivot.core import plugins
from pivot.core.images import decode, encode_png
from pivot.core.plugins import read_settings
from pivot.datasets.store.schema import EPISODES, STEPS
from pivot.datasets.store.tables import failed_episodes, rollout_tables
from pivot.environments.svg.environment import SvgEnv
from pivot.environments.svg.sandbox.raster import MAX_DOCUMENT_BYTES
from pivot.environments.turns import ReplyOutcome
from pivot.labeling.analyzer import shown_log
from pivot.labeling.base import FailedEpisode, Label
from pivot.labeling.domains import domain_of
from pivot.labeling.label import certify_episodes, label_episodes
from pivot.labeling.replay import Replays
from pivot.labeling.writers.template import TemplateWriter
from pivot.rollouts.loop import roll_out_tasks
from pivot.rollouts.parser import parse_reply
from pivot.rollouts.plan import plan_tasks
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case
from pivot.tests.labeling.episodes import failed
from pivot.tests.labeling.fact_checker import Checker
from pivot.tests.navigation_episodes import thor_state

ENVIRONMENTS = ("sokoban", "frozenlake", "navigation", "primitiveskill", "svg")
Lines = list[dict[str, str]]


def solver(env: str, **options: Any) -> Any:
    kind = plugins.load("solvers", env)
    return kind(read_settings(kind.config_type, options, "solver "))


def labelled(episode: FailedEpisode, **options: Any) -> Label:
    (label,) = label_episodes([episode], solver(episode.env, **options), TemplateWriter(), [], "1")
    assert label.certificate is not None
    return label


def lines(label: Label) -> Lines:
    """Return the fields of each log line in the prompt."""
    log = shown_log(label.prompt.messages)
    return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in log.splitlines()]


# The rules of the labels, applied to printed values


def first_fatal(needed: Sequence[float], horizon: int) -> int:
    fatal = (t for t in range(len(needed) - 1) if needed[t + 1] > horizon - 1 - t or (t == 0 and needed[0] > horizon))
    return next(fatal, len(needed) - 2)


def turns(metres: float, threshold: float = 1.5) -> int:
    return math.ceil(max(0.0, metres - threshold) / 0.5 - 1e-6)


def navigation(episode: FailedEpisode, log: Lines, threshold: float = 1.5, window: int = 5) -> tuple[int, str]:
    state = json.loads(episode.initial_state)
    agent, target = (state[name]["position"] for name in ("agent", "target"))
    dist = [math.hypot(agent["x"] - target["x"], agent["z"] - target["z"])]
    for line in log:
        dist.append(float(line["dist"]) if "dist" in line else dist[-1])
    t = first_fatal([turns(metres, threshold) for metres in dist], episode.horizon)
    line = log[t]
    stopped = "false" in (line.get("moved"), line.get("last_action_success"))
    if line["action"] == "invalid":
        return t, "format"
    if line["action"].startswith("move") and stopped:
        return t, "blocked"
    if t >= window and round(dist[t + 1 - window] - dist[t + 1], 9) < 0.1:
        return t, "stagnation"
    return t, "budget"


def primitiveskill(episode: FailedEpisode, log: Lines) -> tuple[int, str]:
    start = len(json.loads(episode.initial_state)["achieved"])
    stages = [start, *(int(line["remaining_stages"]) for line in log)]
    t = first_fatal(stages, episode.horizon)
    names = [re.findall(r"(pick|place|push)\(", line["action"]) for line in log]
    turn = names[t]
    before_pick = turn[: turn.index("pick")] if "pick" in turn else turn
    if not turn or log[t]["legal"] == "false":
        return t, "format"
    if not any("pick" in earlier for earlier in names[:t]) and before_pick:
        return t, "order_error"
    if "pick" in turn and "place" in turn[turn.index("pick") :] and stages[t + 1] == stages[t]:
        return t, "wrong_target"
    return t, "timeout"


def svg(episode: FailedEpisode, log: Lines) -> tuple[int, str]:
    t = episode.num_steps - 1
    scores = [float(line["average_score"]) for line in log]
    assert scores[-1] < 1, "the log calls a failure a success"
    if log[t]["valid_svg"] == "false":
        return t, "format"
    if t == 0:
        return t, "mismatch"
    change = round(scores[-1] - scores[-2], 9)
    return t, "regression" if change < -0.01 else "stagnation" if change <= 0.01 else "mismatch"


READ: dict[str, Callable[..., tuple[int, str]]] = {
    "navigation": navigation,
    "primitiveskill": primitiveskill,
    "svg": svg,
}


# Guidance


def check_guidance(episode: FailedEpisode, label: Label, log: Lines) -> None:
    assert label.pivot_step is not None and label.failure_mode is not None
    assert log[label.pivot_step]["action"] == episode.actions[label.pivot_step]
    text = label.failure_reason or ""
    if episode.env == "navigation":  # the turns that the rounded metres take
        for metres, moves in re.findall(r"([\d.]+) m [^.]*?at least (\d+) moves?", text):
            assert turns(float(metres), label_threshold(label)) == int(moves), text
        if "threshold" in label.solver_config and label_threshold(label) != 1.5:
            return
    assert Checker(episode, label.pivot_step, label.failure_mode).false_statements(text) == []


def label_threshold(label: Label) -> float:
    return json.loads(label.solver_config).get("threshold", 1.5)


def check(episode: FailedEpisode, label: Label, threshold: float = 1.5, **rules: Any) -> None:
    log = lines(label)
    if episode.env in READ:
        rules |= {"threshold": threshold} if episode.env == "navigation" else {}
        assert READ[episode.env](episode, log, **rules) == (label.pivot_step, label.failure_mode)
    check_guidance(episode, label, log)


# Over all environments


BLACK = encode_png(np.zeros((8, 8, 3), np.uint8))
BLIND = {"_frame": lambda _: decode(BLACK), "encode_frame": lambda *_: ("png", BLACK)}
"""Rendered views take most of a rollout's time, and no label uses them."""


@lru_cache
def failures(env: str, levels: int, rollouts: int = 8, *, blind: bool = False) -> list[FailedEpisode]:
    """Failed episodes of the stand-in, as labelling reads them; a third of its replies keep no format."""
    kind = plugins.load("environments", env)
    config = kind.config_type()
    options = {"habits": {env: {"no_think" if env == "svg" else "bad_format": 0.3}}}
    policy = ScriptedPolicy(read_settings(ScriptedPolicy.config_type, options, "policy "))
    tasks = plan_tasks(kind, config, 0, levels)
    played = type("Blind", (kind,), BLIND) if blind else kind
    tables = rollout_tables(roll_out_tasks(played, config, tasks, policy, rollouts))
    return failed_episodes(tables[EPISODES], tables[STEPS])


@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_the_printed_log_gives_the_label_and_guidance_says_the_same(env: str) -> None:
    """Catch a label that the log in the prompt contradicts, or a false sentence of guidance."""
    seen = set()
    for episode in failures(env, 4 if env == "svg" else 6, blind=env in ("navigation", "primitiveskill")):
        label = labelled(episode)
        check(episode, label)
        seen.add(label.failure_mode)
    assert len(seen) > 1


def test_action_is_valid_follows_the_reply_and_replays() -> None:
    thoughtless = 0
    with Replays() as replays:
        for episode in failures("navigation", 2):
            logged = [line["action_is_valid"] == "true" for line in lines(labelled(episode))]
            assert logged == list(episode.action_valid)
            ran = [outcome == ReplyOutcome.NO_THINK for outcome in episode.reply_outcomes]
            thoughtless += sum(ran)
            assert not any(valid for valid, no_think in zip(logged, ran, strict=True) if no_think)
            replays.of(episode).check(episode)
    assert thoughtless


# Values at bounds, where rounding decides

EDGES = st.builds(
    lambda base, off, sign: max(0.0, base + sign * off),
    st.sampled_from([1.51, 1.6, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 2.82, 2.72]),
    st.sampled_from([0.0, 1e-9, 4e-7, 6e-7, 1e-5, 0.0004, 0.0036, 0.0049, 0.005, 0.0051, 0.0996, 0.1004]),
    st.sampled_from([-1, 1]),
)


def walk(start: float, distances: Sequence[float | None], horizon: int) -> FailedEpisode:
    count = len(distances)
    infos = [
        {
            "moved": True,
            "last_action_success": True,
            "action_is_valid": True,
            "dist": d,
            "remaining_turns": horizon - 1 - t,
        }
        for t, d in enumerate(distances)
    ]
    case = Case(thor_state(start), ["rotateleft"] * count, horizon, infos)
    return failed("navigation", case, episode_id="e", env_config={}, instruction="find the Bread")


@settings(max_examples=150, deadline=None)
@given(
    EDGES, st.lists(st.none() | EDGES, min_size=1, max_size=9), st.sampled_from([1.5, 1.0, 1.234]), st.integers(0, 2)
)
@example(4.0, [3.0036, 3.0036], 1.5, 2)  # 3.00 m would take three moves, it takes four
@example(3.0036, [3.5], 1.5, 1)  # lost at the start: its distance is in the guidance alone
@example(2.82, [2.82, 2.82, 2.82, 2.72, 2.72, 2.72], 1.5, 0)  # a gain of exactly 0.1 m, below it in binary
@example(2.9, [2.9, 2.85, 2.85, 2.85, 2.85, 2.7496], 1.5, 0)  # a gain of 0.1504 m; with two decimals it is 0.15
def test_no_distance_is_rounded_over_an_edge(
    start: float, distances: list[float | None], threshold: float, spare: int
) -> None:
    if min([start, *(d for d in distances if d is not None)]) <= threshold:
        return
    episode = walk(start, distances, len(distances) + spare)
    check(episode, labelled(episode, threshold=threshold, window=3), threshold, window=3)


SCORES = st.builds(
    lambda base, off, sign: min(1.0 - 1e-7, max(0.0, base + sign * off)),
    st.sampled_from([0.0, 0.5, 0.79, 0.8, 0.81, 0.99, 1.0]),
    st.sampled_from([0.0, 1e-10, 1e-7, 0.0001, 0.0049, 0.005, 0.0051, 0.01, 0.0100001]),
    st.sampled_from([-1, 1]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(SCORES, min_size=1, max_size=3))
@example([0.8049, 0.7951])  # 0.80 and 0.80, but a fall of 0.0098
@example([0.8051, 0.7949])  # 0.81 and 0.79 stay a fall
@example([0.5, 0.99999])  # no failed drawing seems exact
def test_no_score_is_rounded_over_an_edge(scores: list[float]) -> None:
    count = len(scores)
    infos = [{"valid_svg": True, "average_score": s, "remaining_turns": count - 1 - t} for t, s in enumerate(scores)]
    episode = replace(
        walk(2.0, [None] * count, count), env="svg", initial_state="{}", actions=["svg"] * count, infos=infos
    )
    check(episode, labelled(episode))


# Reasons why nothing was drawn


def one_submission(submission: str | None, reply: str = "ok", finish: str = "stop") -> FailedEpisode:
    """An episode with one submission, which scored nothing."""
    infos = [{"valid_svg": False, "average_score": 0.0, "remaining_turns": 1}]
    return replace(
        walk(2.0, [None], 2),
        env="svg",
        actions=["svg" if submission else "empty"],
        infos=infos,
        reply_outcomes=[reply],
        finish_reasons=[finish],
        submission_outcomes=[submission or "empty"],
    )


def submitted(submission: str | None, reply: str = "ok", finish: str = "stop") -> str:
    """The guidance for an episode with one submission."""
    return labelled(one_submission(submission, reply, finish)).failure_reason or ""


DRAWING = '<svg xmlns="http://www.w3.org/2000/svg"/>'
LONG = f"<!--{'-' * MAX_DOCUMENT_BYTES}-->"


@pytest.mark.parametrize(
    ("reply", "finish", "false"),
    [
        pytest.param(f"<think>a</think>{DRAWING}", "stop", "document", id="a document without answer tags"),
        pytest.param(f"<think>a</think>{DRAWING} and then", "length", "document", id="the same, cut after it"),
        pytest.param("<think><answer>red</answer>", "stop", "document", id="a word in the thought"),
        pytest.param("<think>a</think><answer></answer>", "stop", "held|holds", id="an empty answer"),
        pytest.param(f"<think>a</think><answer>{DRAWING}{LONG}</answer>", "stop", "document", id="a long comment"),
    ],
)
def test_no_wording_denies_what_an_unusable_reply_holds(reply: str, finish: str, false: str) -> None:
    env, profile = SvgEnv.from_settings({}), SvgEnv.profile
    parsed = parse_reply(reply, profile.answer_tag, env.parse_action, profile.reply_limit, keeps_case=True)
    assert parsed.action is None
    (certified,) = certify_episodes([one_submission(None, parsed.outcome, finish)], solver("svg"))
    assert certified.offer is not None
    wordings = [text for each in certified.offer.facts for text in domain_of("svg").sentences.wordings[each.kind]]
    assert wordings and not [text for text in wordings if re.search(false, text)]


def test_a_document_with_another_root_is_not_called_malformed() -> None:
    (certified,) = certify_episodes([one_submission("not_svg")], solver("svg"))
    assert certified.offer is not None
    wordings = domain_of("svg").sentences.wordings[certified.offer.facts[0].kind]
    assert all("SVG" in text for text in wordings), "<html><svg/></html> is well-formed XML"


def test_advice_names_why_nothing_was_drawn() -> None:
    texts = {word: submitted(word) for word in ("not_svg", "timeout", "memory", "too_large", "forbidden", "crashed")}
    reasons = r"well.formed|read as SVG|its time|too long|memory|longer|length|outside|be drawn"
    assert all(re.search(reasons, text) for text in texts.values()), texts
    assert len(set(texts.values())) == len(texts)
    assert re.search(r"broke off|cut off", submitted(None, "no_answer", "length"))
    assert "the thought" in submitted(None, "tag_in_think")
    assert re.search(r"held no answer|no answer could|readable answer", submitted(None, "no_answer"))
