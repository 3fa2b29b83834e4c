"""The factual filters: clean records pass, and only the responsible rule finds a planted fault, once."""

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
from pivot.core import plugins
from pivot.core.errors import PluginError
from pivot.core.plugins import Settings
from pivot.labeling.base import Draft, FailedEpisode, Filter, Guidance, GuidanceRequest, GuidanceWriter, Label
from pivot.labeling.domains import domain_of
from pivot.labeling.domains.sokoban import SokobanDeadlockFilter
from pivot.labeling.filters import GuidanceFilter, ModeFilter, TargetFilter
from pivot.labeling.label import label_episodes
from pivot.labeling.prose import is_refusal
from pivot.labeling.statements import Statement
from pivot.labeling.target import build_target
from pivot.labeling.writers.template import TemplateWriter
from pivot.solvers.base import FAILURE_MODES, Case, Certificate, Solver, Unsolved, Verdict
from pivot.tests.labeling.episodes import record

ROOM = "######\n#    #\n# $  #\n#@ . #\n#    #\n######"
"""The box has to go right, then down; pushed up to the wall it is lost."""
LAKE = "SFFF\nFHFH\nFFFH\nHFFG"
FILTERS: list[Filter] = [plugins.load("filters", name)() for name in plugins.names("filters")]
Change = Callable[[FailedEpisode], FailedEpisode]


def solver_of(env: str) -> Solver:
    return plugins.load("solvers", env)()


class FixedTeacher(GuidanceWriter):
    """A teacher with a fixed text, as prose or as rendered text."""

    config_type = Settings
    name = "fixed"

    def __init__(self, text: str, *, rendered: bool = False) -> None:
        self._text, self._rendered = text, rendered

    @property
    def config(self) -> dict[str, Any]:
        return {"text": self._text}

    def write(self, requests: Sequence[GuidanceRequest]) -> list[Guidance]:
        guidance = Guidance(rendered=self._text) if self._rendered else Guidance(self._text)
        return [guidance for _ in requests]


@dataclass(frozen=True)
class LyingSolver(Solver):
    """A solver that gives episodes with a pivot one fixed verdict, but correct answers about plain states."""

    config_type = Settings
    name = "lying"
    version: ClassVar[str] = "1"
    modes: ClassVar[tuple[str, ...]] = FAILURE_MODES
    actions: ClassVar[tuple[str, ...]] = ("up", "down", "left", "right")
    verdict: Verdict
    honest: Solver

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def certify(self, cases: Sequence[Case]) -> list[Verdict | Unsolved]:
        return [self.verdict if len(case.actions) > 1 else self.honest.certify([case])[0] for case in cases]


def played(env: str, state: str, *actions: str) -> FailedEpisode:
    episode = record(env, state, actions)
    assert episode is not None
    return episode


def room(*actions: str) -> FailedEpisode:
    return played("sokoban", ROOM, *actions, *["invalid"] * (9 - len(actions)))


def lake_timeout() -> FailedEpisode:
    return played("frozenlake", LAKE, *["right", "left"] * 4, "invalid")


def lake_fall() -> FailedEpisode:
    return played("frozenlake", LAKE, "right", "down")


def lake_late_fall() -> FailedEpisode:
    """Out of turns from step 6 on, and in a hole at step 7."""
    return played("frozenlake", "SFFG\nHFFF", *["left"] * 7, "down")


def short_walk() -> FailedEpisode:
    kind = plugins.load("environments", "navigation")
    episode = played("navigation", kind.make_task(kind.config_type(), 5).initial_state, *["rotateleft"] * 25)
    return replace(episode, env_config={name: it for name, it in episode.env_config.items() if name != "task_files"})


def labels_of(
    episode: FailedEpisode, teacher: GuidanceWriter | None = None, solver: Solver | None = None
) -> tuple[Label, list[str]]:
    source = "prose" if isinstance(teacher, FixedTeacher) else "facts"
    (label,) = label_episodes(
        [episode], solver or solver_of(episode.env), teacher or TemplateWriter(), FILTERS, "1", source=source
    )
    return label, [f"{reason.name}: {reason}" for reason in label.reject_reasons]


def at(values: Sequence[Any], index: int, value: Any) -> list[Any]:
    changed = list(values)
    changed[index] = value
    return changed


# The replay rule

REPLAY_FAULTS: dict[str, tuple[Change, str]] = {
    "reward": (lambda e: replace(e, rewards=at(e.rewards, 4, 0.9)), "reward: step 4 gives -0.1, the log says 0.9"),
    "info value": (
        lambda e: replace(e, infos=at(e.infos, 2, {**e.infos[2], "moved": not e.infos[2]["moved"]})),
        "info: step 2 gives moved=",
    ),
    "info missing": (
        lambda e: replace(e, infos=at(e.infos, 2, {"moved": e.infos[2]["moved"]})),
        "info: step 2 gives remaining_turns=6, the log has no remaining_turns",
    ),
    "info too many": (
        lambda e: replace(e, infos=at(e.infos, 2, {**e.infos[2], "dist": 1.0})),
        "info: step 2 gives no dist, the log says 1.0",
    ),
    "first frame": (lambda e: replace(e, frame_ids=at(e.frame_ids, 0, "0" * 64)), "frame: the first frame"),
    "frame": (lambda e: replace(e, frame_ids=at(e.frame_ids, 3, "0" * 64)), "frame: the one after step 2"),
    "terminal frame": (lambda e: replace(e, frame_ids=at(e.frame_ids, -1, "0" * 64)), "frame: the one after step 8"),
    "horizon": (lambda e: replace(e, horizon=10), "horizon: the row says 10, its env_config 9"),
    "settings": (lambda e: replace(e, env_config={"horizon": -3}), "settings: "),
    "picture size": (lambda e: replace(e, env_config={**e.env_config, "cell": 20}), "frame: the first frame"),
    "cut log": (
        lambda e: replace(
            e,
            actions=e.actions[:-1],
            payloads=e.payloads[:-1],
            rewards=e.rewards[:-1],
            infos=e.infos[:-1],
            action_valid=e.action_valid[:-1],
            frame_ids=e.frame_ids[:-1],
        ),
        "end: the episode is not over after step 7",
    ),
    "payload": (lambda e: replace(e, payloads=at(e.payloads, 1, "{}")), "action: step 1: "),
}


@pytest.mark.parametrize("fault", REPLAY_FAULTS)
@pytest.mark.parametrize("env", ["sokoban", "frozenlake"])
def test_replay_finds_what_disagrees(env: str, fault: str) -> None:
    change, expected = REPLAY_FAULTS[fault]
    clean = room("up", "right") if env == "sokoban" else lake_timeout()
    assert labels_of(clean)[1] == []
    label, reasons = labels_of(change(clean))
    assert len(reasons) == 1 and reasons[0].startswith(f"replay: {expected}")
    assert not label.accepted


def test_replay_finds_a_log_that_goes_on_after_the_end() -> None:
    fall = lake_fall()
    longer = replace(
        fall,
        actions=[*fall.actions, "invalid"],
        payloads=[*fall.payloads, None],
        rewards=[*fall.rewards, -0.1],
        infos=[*fall.infos, {"moved": False, "remaining_turns": 6}],
        action_valid=[*fall.action_valid, False],
        frame_ids=[*fall.frame_ids, fall.frame_ids[-1]],
    )
    verdict = solver_of("frozenlake").certify([Case(LAKE, fall.actions, 9)])[0]
    assert isinstance(verdict, Verdict)
    draft = Draft(verdict, None, build_target(verdict.pivot_step, verdict.failure_mode), solver_of("frozenlake"))
    assert [(reason.name, str(reason)) for rule in FILTERS if (reason := rule.judge(longer, draft))] == [
        ("replay", "end: the episode is over after step 1, the log goes on")
    ]


def test_an_environment_that_is_not_installed_is_an_error_not_a_reject() -> None:
    episode = replace(lake_fall(), env="nowhere")
    with pytest.raises(PluginError, match="nowhere"):
        label_episodes([episode], solver_of("frozenlake"), None, FILTERS, "1")


# Targets and modes


@pytest.mark.parametrize("step", [9, 10])
def test_a_step_that_the_episode_does_not_have_is_rejected(step: int) -> None:
    """It is rejected even if target and label agree on it."""
    episode, solver = lake_timeout(), solver_of("frozenlake")
    verdict = Verdict(step, "timeout", Certificate("exact", "moves", 1, 0, 5, 6, True))
    detail = TargetFilter().check(episode, Draft(verdict, None, build_target(step, "timeout"), solver))
    assert str(detail) == f"out_of_range: pivot_step {step} is not in [0, 8]"


@pytest.mark.parametrize("modes", [("timeout", ("deadlock", "blocked")), ("blocked", ())])
def test_a_mode_of_another_environment_is_rejected(modes: tuple[str, tuple[str, ...]]) -> None:
    episode = lake_timeout()
    verdict = Verdict(0, modes[0], Certificate("exact", "moves", 9, 8, 5, 6, True), modes[1])
    detail = ModeFilter().check(episode, Draft(verdict, None, "", solver_of("frozenlake")))
    assert str(detail) == "unknown: 'blocked' is not a mode of frozenlake: timeout, deadlock"


# Guidance


@pytest.mark.parametrize(
    ("action", "text", "accepted"),
    [
        ("left", "At step 3, go up.", True),
        ("left", "STEP 3: go up.", True),
        ("left", "Do not move left there.", True),
        ("left", "Do not move Left.", True),
        ("left", "At step 13, go up.", False),
        ("left", "At step 30, go up.", False),
        ("left", "Do not be leftist.", False),
        ("left", "Go another way.", False),
        ("invalid", "Always give a usable reply.", False),
        ("invalid", "An invalid reply wastes a turn.", True),
        ("pick(1,2,3)|place(4,5,6)", "Do not pick the red cube first.", True),
        ("pick(1,2,3)|place(4,5,6)", "Choose pick(1,2,3)|place(4,5,6) later.", True),
        ("pick(1,2,3)|place(4,5,6)", "Replace the cube; 1, 2, 3.", False),
        ("left", "", False),
        ("left", " \n", False),
    ],
)
def test_prose_names_the_step_or_the_action(action: str, text: str, accepted: bool) -> None:
    certificate = Certificate("exact", "moves", 6, 5, 5, 6, True)
    episode = replace(lake_timeout(), actions=[action] * 9)
    draft = Draft(Verdict(3, "timeout", certificate), text, "", solver_of("frozenlake"), source="prose")
    detail = GuidanceFilter().check(episode, draft)
    assert (detail is None) == accepted
    if detail is not None:
        assert str(detail).startswith("unrelated: " if text.strip() else "empty: ")


def test_no_teacher_means_no_guidance_and_no_objection() -> None:
    (label,) = label_episodes([lake_timeout()], solver_of("frozenlake"), None, FILTERS, "1")
    assert label.accepted and (label.failure_reason, label.teacher, label.teacher_config) == ("", None, None)


# Sokoban deadlocks


def test_a_deadlock_of_another_step_or_without_a_proof_is_rejected() -> None:
    episode = room("down", "right", "up", "up")  # the last push jams the box against the upper wall
    honest = solver_of("sokoban").certify([Case(ROOM, episode.actions, 9)])[0]
    assert isinstance(honest, Verdict) and (honest.pivot_step, honest.failure_mode) == (3, "deadlock")
    moved = LyingSolver(replace(honest, pivot_step=2), solver_of("sokoban"))
    label, reasons = labels_of(episode, solver=moved)
    assert reasons == ["sokoban_deadlock: not_dead: the state after step 2 can still be solved"]
    assert (label.pivot_step, label.failure_mode, label.accepted) == (2, "deadlock", False)
    assert labels_of(episode, solver=LyingSolver(honest, solver_of("sokoban")))[1] == []
    reachable = replace(honest, certificate=replace(honest.certificate, reachable_after=True))
    (reason,) = labels_of(episode, solver=LyingSolver(reachable, solver_of("sokoban")))[1]
    assert reason.startswith("sokoban_deadlock: certificate: ")
    tired = plugins.load("solvers", "sokoban")(max_states=1)
    detail = SokobanDeadlockFilter().check(episode, Draft(honest, None, "", tired))
    assert str(detail).startswith("unproved: the state after step 3: solver_limit")


# The rules about prose


@pytest.mark.parametrize(
    ("episode", "text", "expected"),
    [
        (lake_timeout, "At step 1 it fell into a hole.", "contradicts"),
        (lake_timeout, "At step 1 too few turns were left.", None),
        (lake_fall, "At step 1 it fell into a hole.", None),
        (lake_fall, "At step 1 it ran out of turns.", "contradicts"),
        (lake_fall, "At step 1 it reached the goal.", "claims_success"),
        (lake_fall, "At step 1 it never reached the goal.", None),
        (lake_fall, "At step 1 it still hadn't reached the goal.", None),
        (lake_fall, "At step 1 it didn\u2019t look and reached the goal.", "claims_success"),
        (lake_fall, "Left at step 1 would have reached the goal.", None),
        (lake_fall, "It moved to the right at step 1 and so reached the goal.", "claims_success"),
        (lake_fall, "At step 1 it never ran out of turns, it fell.", None),
        (lake_timeout, "It never fell into a hole, but at step 1 the goal was too far.", None),
        (lake_timeout, "Had it gone down at step 1, it would have fallen into a hole.", None),
        (lake_late_fall, "At step 1 the agent ran out of turns, and it fell into a hole later.", None),
        (short_walk, "At step 1 it reached the target.", "contradicts"),
        (short_walk, "After step 1 the agent had not found the object.", None),
        (short_walk, "Two moves after step 1 could have reached the target.", None),
        (lake_fall, "I'm sorry, but I can't help with step 1.", "refusal"),
    ],
)
def test_prose_must_not_contradict_what_is_plain(
    episode: Callable[[], FailedEpisode], text: str, expected: str | None
) -> None:
    subject = episode()
    step = labels_of(subject)[0].pivot_step
    label, reasons = labels_of(subject, FixedTeacher(text.replace("step 1", f"step {step}")))
    assert [reason.split(": ")[:2] for reason in reasons] == ([["guidance", expected]] if expected else [])
    assert (label.guidance_source, label.guidance_prose) == ("prose", label.failure_reason)


@pytest.mark.parametrize(
    ("text", "declines"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m not able to judge that.", True),
        ("As an AI assistant I do not play.", True),
        ("I am unable to see the picture.", True),
        ("I cannot view images.", True),
        ("The box cannot be pulled.", False),
        ("Avoid being sorry: at step 3, move up.", False),
    ],
)
def test_refusals(text: str, declines: bool) -> None:
    assert is_refusal(text) == declines


# Rendered guidance


def rendered(text: str) -> list[str]:
    """Return the kinds of problems of a text in rendered form."""
    teacher, episode = FixedTeacher(text, rendered=True), room("down", "right", "up", "up")
    (label,) = label_episodes([episode], solver_of("sokoban"), teacher, FILTERS, "1")
    return [reason.kind for reason in label.reject_reasons]


def test_a_stored_text_is_read_back_and_held_against_the_facts() -> None:
    honest, _ = labels_of(room("down", "right", "up", "up"))
    text = honest.failure_reason or ""
    assert honest.guidance_source == "facts" and rendered(text) == []
    assert rendered(text.replace("step 3", "step 2")) == ["untrue"]
    assert rendered(text + " Step 3 was spent on the action up, which changed nothing.") == ["untrue"]
    assert rendered(text + " The agent solved the room.") == ["unknown_sentence"]
    assert rendered(text.replace("At step 3", "In step 3")) == ["unknown_sentence"]
    assert rendered(text + " x" * 2_000) == ["unknown_sentence"]
    wrong = [each for each in ("up", "down") if each not in (honest.feasible_actions or ())]
    for action in wrong:
        assert rendered(f"At step 3, do not push up; move {action} instead.") == ["untrue"]


@pytest.mark.parametrize("env", ["sokoban", "frozenlake", "navigation", "primitiveskill", "svg"])
def test_every_wording_is_read_back_as_what_it_was_rendered_from(env: str) -> None:
    """Values of every shape: counts, numbers, decimals, single actions and joined ones."""
    values = {"step": ("0", "12"), "turns": ("1 turn", "25 turns"), "moves": ("1 move", "4 moves")}
    values |= {"stages": ("1 stage", "3 stages"), "metres": ("0.50", "12.345"), "side": ("up", "left")}
    values |= {"before": ("0.00", "0.125"), "after": ("0.99", "1.00")}
    actions = ("left", "empty", "pick(1,-2,3)|place(4,5,-6)")
    sentences = domain_of(env).sentences
    for kind, texts in sentences.wordings.items():
        slots = sorted(set(re.findall(r"{(\w+)}", texts[0])))
        for chosen in itertools.product(*(values.get(name, actions) for name in slots)):
            said = Statement(kind, tuple(zip(slots, chosen, strict=True)))
            for number in range(len(texts)):
                text = sentences.sentence(said, number)
                assert sentences.read(text) == [said] and sentences.read(f"{text} {text}") == [said, said]
