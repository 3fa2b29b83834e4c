"""Failed episodes for tests of labelling: real environments, seeded random actions, recorded as they are stored."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pivot.core import plugins
from pivot.core.images import frame_id
from pivot.environments.base import PivotEnv
from pivot.labeling.base import FailedEpisode
from pivot.solvers.base import Case

ACTIONS = ("up", "down", "left", "right", "invalid")


def failed(env: str, case: Case, **changes: Any) -> FailedEpisode:
    """Return the episode of a case whose pictures and rewards are not used."""
    count = len(case.actions)
    plain = FailedEpisode(
        episode_id="episode",
        env=env,
        env_version="1",
        env_config={"horizon": case.horizon},
        task_id="task",
        instruction="",
        initial_state=case.initial_state,
        horizon=case.horizon,
        actions=case.actions,
        payloads=[None] * count,
        rewards=[-0.1] * count,
        infos=case.steps,
        action_valid=[True] * count,
        frame_ids=[f"frame-{t}" for t in range(count + 1)],
        observations=case.observations,
    )
    return replace(plain, **changes)


def record(env_name: str, initial_state: str, actions: Sequence[str], **settings: Any) -> FailedEpisode | None:
    """Play ``actions`` until the episode ends; None when it succeeds or does not end."""
    env: PivotEnv = plugins.load("environments", env_name).from_settings(settings)
    frame, _ = env.reset(options={"state": initial_state})
    frames, rewards, infos = [frame_id(frame)], [], []
    for action in actions:
        frame, reward, terminated, truncated, info = env.step(env.encode_action(action))
        frames.append(frame_id(frame))
        rewards.append(float(reward))
        infos.append({key: value for key, value in info.items() if key != "success"})
        if terminated or truncated:
            if info["success"]:
                return None
            steps = len(rewards)
            case = Case(initial_state, list(actions[:steps]), env.config.horizon, json.loads(json.dumps(infos)))
            valid = [action != "invalid" for action in actions[:steps]]
            facts = {"env_version": env.profile.version, "env_config": env.config.model_dump(mode="json")}
            return failed(env_name, case, rewards=rewards, action_valid=valid, frame_ids=frames, **facts)
    return None


def random_failures(env_name: str, count: int, seed: int = 0, **settings: Any) -> list[FailedEpisode]:
    """Return ``count`` failed episodes of generated levels, up to eight of each, task by task.

    With ``actions_per_turn`` in the settings, the turns have random lengths.
    """
    env_type: type[PivotEnv] = plugins.load("environments", env_name)
    config = env_type.config_type(**settings)
    failures: list[FailedEpisode] = []
    rng = random.Random(seed)
    while len(failures) < count:
        task = env_type.make_task(config, rng.getrandbits(40))
        for _ in range(8):
            actions = rng.choices(ACTIONS, weights=(5, 5, 5, 5, 1), k=config.horizon)
            if (most := settings.get("actions_per_turn", 1)) > 1:
                more = [rng.choices(ACTIONS[:4], k=rng.randrange(most)) for _ in actions]
                turns = zip(actions, more, strict=True)
                actions = [first if first == "invalid" else "|".join((first, *rest)) for first, rest in turns]
            episode = record(env_name, task.initial_state, actions, **settings)
            if episode is not None:
                name = f"episode-{len(failures)}"
                failures.append(replace(episode, episode_id=name, task_id=task.task_id, instruction=task.instruction))
    return failures[:count]
