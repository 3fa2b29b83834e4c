"""Failed episodes that the labelled guidance texts are about: five environments, their modes, each with its verdict."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pivot import plugins
from pivot.environments.primitiveskill.tasks import KINDS
from pivot.labeling.analyzer import analyzer_prompt
from pivot.labeling.base import FailedEpisode, GuidanceRequest
from pivot.solvers.base import Case, Verdict
from pivot.tests.labeling.episodes import record
from pivot.tests.navigation_episodes import printed_episode, thor_state
from pivot.tests.primitiveskill_episodes import SOME_ACTIONS, log, observation

ROOM = "######\n#    #\n# $  #\n#@ . #\n#    #\n######"
LAKE = "SFFF\nFHFH\nFFFH\nHFFG"
BOTH, PUSH = SOME_ACTIONS[4], SOME_ACTIONS[3]


def _of_case(env: str, case: Case, instruction: str) -> FailedEpisode:
    """An episode that only its log tells about; nobody re-executes it."""
    count = len(case.actions)
    return FailedEpisode(
        episode_id="episode",
        env=env,
        env_version="1",
        env_config={"horizon": case.horizon},
        task_id="task",
        instruction=instruction,
        initial_state=case.initial_state,
        horizon=case.horizon,
        actions=case.actions,
        payloads=[None] * count,
        rewards=[-0.1] * count,
        infos=case.steps,
        action_valid=[action not in ("empty", "invalid") for action in case.actions],
        frame_ids=[f"frame{t}" for t in range(count + 1)],
        observations=case.observations,
    )


def _walk(*turns: tuple[str, bool, float | None]) -> FailedEpisode:
    """A walk of seven turns from 3 m: the action, whether it did anything, and the metres left."""
    steps: list[dict[str, Any]] = [
        {
            "moved": moved,
            "last_action_success": moved,
            "action_is_valid": action != "invalid",
            "remaining_turns": 6 - t,
            **({} if dist is None else {"dist": dist}),
        }
        for t, (action, moved, dist) in enumerate(turns)
    ]
    case = Case(thor_state(3.0), [action for action, *_ in turns], 7, steps)
    return _of_case("navigation", case, "navigate to the Bread in the room and be as close as possible to it")


def _skill(task: str, turns: Sequence[tuple[str, int]], *at: tuple[int, int, int]) -> FailedEpisode:
    case = log(task, turns)
    told = [observation(task, *at)] * len(turns)
    return _of_case(
        "primitiveskill",
        Case(case.initial_state, case.actions, case.horizon, case.steps, told),
        KINDS[task].instruction,
    )


def _drawings(*turns: tuple[str, bool, float]) -> FailedEpisode:
    steps = [
        {"valid_svg": valid, "remaining_turns": len(turns) - 1 - t, "average_score": score}
        for t, (_, valid, score) in enumerate(turns)
    ]
    case = Case(json.dumps({}), [action for action, *_ in turns], len(turns), steps)
    return _of_case("svg", case, "")


def _played(env: str, level: str, *actions: str) -> FailedEpisode:
    episode = record(env, level, [*actions, *["invalid"] * (9 - len(actions))])
    assert episode is not None
    return episode


@lru_cache(maxsize=1)
def cases() -> dict[str, GuidanceRequest]:
    """One request for guidance a name."""
    episodes = {
        "sokoban_dead": _played("sokoban", ROOM, "down", "right", "up", "up"),
        "sokoban_slow": _played("sokoban", ROOM, "left", "left", "left", "up", "down", "left", "left", "left", "left"),
        "sokoban_mute": _played("sokoban", ROOM, "up", "right"),
        "lake_fall": _played("frozenlake", LAKE, "right", "down"),
        "lake_slow": _played("frozenlake", LAKE, *["right", "left"] * 4),
        "walk_blocked": _walk(
            ("rotateleft", True, 3.0),
            ("moveahead", True, 2.5),
            ("rotateleft", True, 2.5),
            ("lookdown", True, 2.5),
            ("moveahead", False, 2.5),
            ("moveahead", False, 2.5),
            ("moveahead", False, 2.5),
        ),
        "walk_mute": _walk(
            ("moveahead", True, 2.5),
            ("rotateleft", True, 2.5),
            ("lookup", True, 2.5),
            ("rotateleft", True, 2.5),
            ("invalid", False, 2.5),
            ("invalid", False, 2.5),
            ("rotateleft", True, 2.5),
        ),
        "walk_away": _walk(
            ("moveback", True, 3.5),
            ("moveback", True, 4.0),
            ("moveahead", True, 3.5),
            ("moveahead", True, 3.0),
            ("moveahead", True, 2.5),
            ("moveahead", True, 2.0),
            ("lookup", True, 2.0),
        ),
        "walk_printed": _of_case("navigation", printed_episode(), "navigate to the Bread in the room"),
        "skill_beside": _skill("stack", [(BOTH, 3)] * 6, (0, 0, 20), (100, 100, 20), (-90, -90, 20)),
        "skill_order": _skill("drawer", [(PUSH, 2)] * 6, (-120, 150, 35)),
        "skill_mute": _skill("align", [("empty", 2)] * 6, (120, -80, 20), (110, 150, 20)),
        "skill_slow": _skill("place", [("pick(1,2,20)", 3), *[(PUSH, 2)] * 5], (-50, -50, 20), (-60, 60, 20)),
        "svg_worse": _drawings(("svg", True, 0.62), ("svg", True, 0.41)),
        "svg_same": _drawings(("svg", True, 0.55), ("svg", True, 0.55)),
        "svg_rough": _drawings(("svg", True, 0.30), ("svg", True, 0.48)),
        "svg_mute": _drawings(("svg", True, 0.57), ("empty", False, 0.0)),
        "svg_broken": _drawings(("svg", True, 0.57), ("svg", False, 0.0)),
    }
    return {name: _request(episode) for name, episode in episodes.items()}


def _request(episode: FailedEpisode) -> GuidanceRequest:
    profile = plugins.load("environments", episode.env).profile
    verdict = plugins.load("solvers", episode.env)().certify([episode.case()])[0]
    assert isinstance(verdict, Verdict), verdict
    return GuidanceRequest(profile, episode, verdict, analyzer_prompt(profile, episode))
