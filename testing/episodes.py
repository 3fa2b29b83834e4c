"""Failed episodes and their labels for contract tests: random plays, equal in every process."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

from ..core.images import encode_png, frame_id
from ..environments.base import EnvConfig, PivotEnv, Task
from ..labeling.episode import FailedEpisode
from ..rollouts.base import stored_keys
from ..solvers.base import Case, Solver, Verdict

Action = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed play."""

    config: EnvConfig
    episode: FailedEpisode
    texts: Sequence[str]
    """State texts, one before each action and the last one."""
    frames: Mapping[str, bytes] = field(default_factory=dict)
    """Encoded pictures by frame id; empty where none were drawn."""


def bad_cases(failure: Failure) -> list[Case]:
    """Return three invalid episodes: without a step, longer than its horizon, with an unknown action."""
    case = failure.episode.case()
    return [
        replace(case, actions=(), steps=(), observations=()),
        replace(case, horizon=len(case.actions) - 1),
        replace(case, actions=("no_such_action", *case.actions[1:])),
    ]


class FailedEpisodes:
    """Where the contracts of solvers, provers and writers get their episodes from; set the class attributes."""

    env_type: ClassVar[type[PivotEnv]]
    actions: ClassVar[Sequence[Action]]
    """Usable actions, ``(name, payload)``, to be drawn from; repeat what should be frequent."""
    settings: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Configs to play, as keyword arguments of ``env_type.config_type``."""
    seeds: ClassVar[Sequence[int]] = tuple(range(8))
    plays: ClassVar[int] = 4
    """Random plays of each level."""
    pictures: ClassVar[bool] = False

    @classmethod
    def failures(cls) -> list[Failure]:
        """Return the failed ones of all plays.

        Raises:
            AssertionError: none failed, so that nothing would be tested.
        """
        played = _failures(cls)
        assert played, "no random play failed; give more seeds, or a shorter horizon"
        return played

    @classmethod
    def choose(cls, rng: random.Random, env: PivotEnv) -> Action:
        """Choose one action of a play, sometimes the unusable one; a test class may play better than at random."""
        if rng.random() < 0.1:
            return env.profile.unusable_action, None
        return rng.choice(cls.actions)


class Labels(FailedEpisodes):
    """Failed plays with the verdicts of a solver."""

    solver_type: ClassVar[type[Solver]]
    solver_settings: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def solver(cls) -> Solver:
        """Make the solver."""
        return cls.solver_type(**cls.solver_settings)

    @classmethod
    def labelled(cls) -> list[tuple[Failure, Verdict]]:
        """Return every failed play with its verdict.

        Raises:
            AssertionError: the solver has none for it.
        """
        return _labelled(cls)


@cache
def _labelled(kind: type[Labels]) -> list[tuple[Failure, Verdict]]:
    failures = kind.failures()
    answers = kind.solver().certify([failure.episode.case() for failure in failures])
    verdicts = [answer for answer in answers if isinstance(answer, Verdict)]
    assert len(verdicts) == len(answers) == len(failures), f"every failed play needs a verdict, found {answers}"
    return list(zip(failures, verdicts, strict=True))


@cache
def _failures(kind: type[FailedEpisodes]) -> list[Failure]:
    return [failure for settings in kind.settings for failure in _plays(kind, kind.env_type.config_type(**settings))]


def _plays(kind: type[FailedEpisodes], config: EnvConfig) -> Iterator[Failure]:
    env = kind.env_type(config)
    env.draw_frames = kind.pictures
    for seed in kind.seeds:
        task, rng = kind.env_type.make_task(config, seed), random.Random(seed)
        for play in range(kind.plays):
            failure = _play(kind, env, task, rng, f"play-{seed}-{play}")
            if failure is not None:
                yield failure
    env.close()


def _play(kind: type[FailedEpisodes], env: PivotEnv, task: Task, rng: random.Random, name: str) -> Failure | None:
    """Play once; None where it was a success."""
    frame, info = env.reset(options={"state": task.initial_state, "instruction": task.instruction})
    actions: list[Action] = []
    texts, frames, rewards, infos = [env.state_text()], [frame], [], []
    observations = [str(info.get("observation_text", ""))]
    over = success = False
    while not over:
        actions.append(kind.choose(rng, env))
        frame, reward, terminated, truncated, info = env.step(env.encode_action(*actions[-1]))
        frames.append(frame)
        texts.append(env.state_text())
        rewards.append(float(reward))
        infos.append({key: info[key] for key in stored_keys(env.profile) if key in info})
        observations.append(str(info.get("observation_text", "")))
        over = terminated or truncated
        success = bool(info["success"]) if env.profile.has_success_bit else sum(rewards) >= env.success_return
    if success:
        return None
    ids = [frame_id(frame) if kind.pictures else f"{name}-{index}" for index, frame in enumerate(frames)]
    pictures = zip(ids, frames, strict=True) if kind.pictures else ()
    episode = FailedEpisode(
        episode_id=name,
        env=env.profile.name,
        env_version=env.profile.version,
        env_config=env.config.decisive(),
        task_id=task.task_id,
        instruction=task.instruction,
        initial_state=task.initial_state,
        horizon=env.config.horizon,
        actions=tuple(action for action, _ in actions),
        payloads=tuple(payload for _, payload in actions),
        rewards=tuple(rewards),
        infos=tuple(infos),
        action_valid=tuple(action != env.profile.unusable_action for action, _ in actions),
        frame_ids=tuple(ids),
        observations=tuple(observations[:-1]),
    )
    return Failure(env.config, episode, tuple(texts), {key: encode_png(frame) for key, frame in pictures})
