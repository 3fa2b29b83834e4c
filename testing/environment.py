"""The contract test of an environment, to be inherited: what every :class:`~pivot.environments.base.PivotEnv` promises.

A new environment's test module holds one subclass that names the environment, a few configs and some bad inputs; pytest
then runs every promise on it. The checks play random episodes from fixed seeds, so a failure comes back.
"""

import pickle
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pydantic import ValidationError

from ..core.errors import LevelError
from ..environments.base import EnvConfig, Frame, PivotEnv

Outcome = tuple[bytes, float, bool, bool, dict[str, Any], str]


class EnvironmentContract:
    """Set the class attributes and inherit; every test must hold for every config."""

    env_type: ClassVar[type[PivotEnv]]
    settings: ClassVar[Sequence[Mapping[str, Any]]] = ({},)
    """Configs to test, as keyword arguments of ``env_type.config_type``."""
    actions: ClassVar[Sequence[tuple[str, str | None]]]
    """Usable actions, ``(name, payload)``."""
    answers: ClassVar[Mapping[str, tuple[str, str | None]]]
    """Texts inside the answer tag and the action they are."""
    garbage: ClassVar[Sequence[str]]
    """Texts inside the answer tag that are no action."""
    bad_states: ClassVar[Mapping[str, str]]
    """State texts that are not levels, and a part of the message that each must give."""
    equal_states: ClassVar[Sequence[tuple[str, str]]] = ()
    """Pairs of texts of the same level."""
    bad_settings: ClassVar[Sequence[tuple[Mapping[str, Any], str]]]
    """Settings that must be refused, and a part of the message."""
    info_keys: ClassVar[frozenset[str]]
    """Keys of ``info`` after a step."""
    reward_range: ClassVar[tuple[float, float]]
    unmoved_is_unchanged: ClassVar[bool] = False
    """Whether an action with ``moved`` false changes nothing at all; false where an agent can pick or drop in place."""
    seeds: ClassVar[Sequence[int]] = tuple(range(12))
    gym_id: ClassVar[str | None] = None

    # --- helpers -----------------------------------------------------------------------------------------------------

    def configs(self) -> Iterator[EnvConfig]:
        for settings in self.settings:
            yield self.env_type.config_type(**settings)

    def episodes(self) -> Iterator[tuple[PivotEnv, str, random.Random]]:
        """Yield environment, level and random stream for every config and seed."""
        for config in self.configs():
            env = self.env_type(config)
            for seed in self.seeds:
                task = self.env_type.make_task(config, seed)
                yield env, task.initial_state, random.Random(seed)

    def unusable(self) -> tuple[str, str | None]:
        return self.env_type.profile.unusable_action, None

    def any_action(self, rng: random.Random) -> tuple[str, str | None]:
        return rng.choice([*self.actions, self.unusable()])

    @staticmethod
    def act(env: PivotEnv, action: tuple[str, str | None]) -> Outcome:
        frame, reward, terminated, truncated, info = env.step(env.encode_action(*action))
        return frame.tobytes(), float(reward), terminated, truncated, info, env.state_text()

    # --- levels ------------------------------------------------------------------------------------------------------

    def test_seed_fixes_the_level(self) -> None:
        for config in self.configs():
            first, second = self.env_type(config), self.env_type(config)
            levels = set()
            for seed in self.seeds:
                frame, info = first.reset(seed=seed)
                again, info_again = second.reset(seed=seed)
                assert np.array_equal(frame, again), "one seed must give one frame"
                assert info == info_again, "one seed must give one info"
                assert first.state_text() == second.state_text(), "one seed must give one state"
                levels.add(first.state_text())
            assert len(levels) > 1, "different seeds should give different levels"

    def test_unseeded_resets_follow_the_last_seed(self) -> None:
        env = self.env_type()
        runs = []
        for _ in range(2):
            env.reset(seed=5)
            texts = []
            for _ in range(4):
                env.reset()
                texts.append(env.state_text())
            runs.append(texts)
        assert runs[0] == runs[1], "unseeded resets must repeat after the same seed"
        assert len(set(runs[0])) > 1, "unseeded resets must give different levels"

    def test_recorded_seed_makes_the_level_at_the_first_try(self) -> None:
        for config in self.configs():
            name = self.env_type.profile.name
            first_try = config.model_copy(update={"max_tries": 1}) if hasattr(config, "max_tries") else config
            for seed in self.seeds:
                task = self.env_type.make_task(config, seed)
                assert task == self.env_type.make_task(config, seed), "a seed must give one task"
                assert task.seed is not None, "a generated level has a seed"
                assert task.task_id == f"{name}-{config.digest()}-{task.seed}"
                assert self.env_type.make_task(first_try, task.seed).initial_state == task.initial_state, (
                    "task.seed must give the level at the first try"
                )
                env = self.env_type(first_try)
                env.reset(seed=task.seed)
                assert env.state_text() == task.initial_state, "reset(seed=task.seed) must give the task's level"

    def test_task_text_restores_the_level(self) -> None:
        for config in self.configs():
            env = self.env_type(config)
            for seed in self.seeds:
                task = self.env_type.make_task(config, seed)
                frame, info = env.reset(options={"state": task.initial_state, "instruction": task.instruction})
                assert np.array_equal(frame, self.env_type(config).reset(seed=task.seed)[0]), (
                    "a level must look the same by its text and by its seed"
                )
                assert info["remaining_turns"] == config.horizon, "reset must give all turns as remaining_turns"
                assert env.state_text() == task.initial_state, "reset must restore the state text"
                assert self.env_type.canonical_state(task.initial_state) == task.initial_state, (
                    "the state text of a task must be canonical"
                )

    def test_canonical_state_ignores_what_does_not_matter(self) -> None:
        for one, other in self.equal_states:
            canonical = self.env_type.canonical_state(one)
            assert canonical == self.env_type.canonical_state(other), (
                "texts of equal_states must have one canonical text"
            )
            assert canonical == self.env_type.canonical_state(canonical), "a canonical text must stay as it is"

    def test_bad_states_are_refused_by_name(self) -> None:
        env = self.env_type()
        _, _ = env.reset(seed=1)
        before = env.snapshot()
        for text, part in self.bad_states.items():
            for read in (self.env_type.canonical_state, lambda text: env.reset(options={"state": text})):
                with pytest.raises(LevelError) as caught:
                    read(text)
                assert part in str(caught.value), f"{text!r}: {caught.value}"
            assert env.snapshot() == before, "a refused level must leave the environment as it was"

    def test_bad_settings_are_refused_by_name(self) -> None:
        for settings, part in self.bad_settings:
            with pytest.raises(ValidationError) as caught:
                self.env_type.config_type(**settings)
            assert part in str(caught.value), f"{settings}: {caught.value}"
        with pytest.raises(ValidationError, match="no_such_setting"):
            self.env_type.config_type.model_validate({"no_such_setting": 1})

    def test_stored_settings_rebuild_the_environment(self) -> None:
        for config in self.configs():
            rebuilt = self.env_type.from_settings(config.model_dump(mode="json"))
            assert rebuilt.config == config, "stored settings must rebuild the config"
            assert rebuilt.config.digest() == config.digest(), "a rebuilt config must have the same digest"

    # --- actions -----------------------------------------------------------------------------------------------------

    def test_actions_round_trip(self) -> None:
        env = self.env_type()
        encoded = [env.encode_action(*action) for action in [*self.actions, self.unusable()]]
        assert all(member in env.action_space for member in encoded), "action_space must hold every encoded action"
        assert len({pickle.dumps(member) for member in encoded}) == len(encoded), (
            "every action must be encoded differently"
        )
        for answer, (name, payload) in self.answers.items():
            parsed = env.parse_action(answer)
            assert parsed is not None, f"the answer {answer!r} was not read"
            assert (parsed.name, parsed.payload) == (name, payload), f"the answer {answer!r} was read as another action"
            env.encode_action(parsed.name, parsed.payload)
        assert {action for action, _ in self.answers.values()} == {action for action, _ in self.actions}, (
            "answers must cover the actions, and no others"
        )

    def test_garbage_is_no_action(self) -> None:
        env = self.env_type()
        for answer in (*self.garbage, self.env_type.profile.unusable_action):
            assert env.parse_action(answer) is None, f"{answer!r} was read as an action"
        with pytest.raises(ValueError, match="no_such_action"):
            env.encode_action("no_such_action")

    def test_unusable_action_costs_a_turn_and_changes_nothing(self) -> None:
        for env, level, rng in self.episodes():
            frame, _ = env.reset(options={"state": level})
            for _ in range(rng.randrange(env.config.horizon)):
                frame, _, terminated, truncated, _ = env.step(env.encode_action(*rng.choice(self.actions)))
                if terminated or truncated:
                    break
            else:
                text, key = env.state_text(), env.frame_key()
                remaining = env.config.horizon - self.turns(env)
                after, reward, terminated, truncated, info = env.step(env.encode_action(*self.unusable()))
                assert np.array_equal(frame, after), "an unusable action must not change the frame"
                assert (env.state_text(), env.frame_key()) == (text, key), (
                    "an unusable action must not change the state"
                )
                assert float(reward) <= 0, "an unusable action must not be rewarded"
                assert info["remaining_turns"] == remaining - 1, "an unusable action must cost one turn"
                assert not info.get("moved", False), "an unusable action must not move"
                assert not terminated, "an unusable action must not terminate"
                assert truncated == (remaining == 1), "the last turn, and no other, must truncate"

    @staticmethod
    def turns(env: PivotEnv) -> int:
        """Return the turns taken, found by playing a copy to the horizon with the unusable action."""
        snapshot, left, over = env.snapshot(), 0, False
        while not over:
            *_, terminated, truncated, _ = env.step(env.encode_action(env.profile.unusable_action))
            left, over = left + 1, terminated or truncated
        env.restore(snapshot)
        return env.config.horizon - left

    # --- episodes ----------------------------------------------------------------------------------------------------

    def test_steps_keep_their_promises(self) -> None:
        low, high = self.reward_range
        for env, level, rng in self.episodes():
            frame, _ = env.reset(options={"state": level})
            self.check_frame(env, frame)
            turn, terminated, truncated = -1, False, False
            while not (terminated or truncated):
                turn += 1
                before = env.state_text()
                frame, reward, terminated, truncated, info = env.step(env.encode_action(*self.any_action(rng)))
                self.check_frame(env, frame)
                assert isinstance(reward, float), "the reward must be a float"
                assert low - 1e-9 <= reward <= high + 1e-9, "the reward is outside reward_range"
                assert set(info) == self.info_keys, "info must hold info_keys and no others"
                assert all(type(value) in (bool, int, float, str, type(None)) for value in info.values()), (
                    f"values of info must be plain: {info}"
                )
                assert info["remaining_turns"] == env.config.horizon - 1 - turn, (
                    "remaining_turns must fall by one per step"
                )
                assert type(terminated) is type(truncated) is bool, "terminated and truncated must be bool"
                assert not (terminated and truncated), "an episode must not terminate and truncate at once"
                if env.profile.has_success_bit:
                    assert type(info["success"]) is bool, "success must be a bool"
                    assert terminated or not info["success"], "a success must terminate"
                unchanged = info.get("last_action_success") is False
                if unchanged or (self.unmoved_is_unchanged and info.get("moved") is False):
                    assert env.state_text() == before, f"an action without effect must not change the state: {info}"
            assert terminated or turn == env.config.horizon - 1, "an episode must end terminated, or at the horizon"

    @staticmethod
    def check_frame(env: PivotEnv, frame: Frame) -> None:
        assert frame in env.observation_space, "the frame is not in observation_space"
        assert not frame.flags.writeable, "frames must be read-only"
        rendered = env.render()
        assert isinstance(rendered, np.ndarray), "render must return an array"
        assert np.array_equal(frame, rendered), "render must return the last frame"

    def test_horizon_ends_every_episode(self) -> None:
        for env, level, _ in self.episodes():
            env.reset(options={"state": level})
            ends = [self.act(env, self.unusable())[2:4] for _ in range(env.config.horizon)]
            assert ends == [(False, False)] * (env.config.horizon - 1) + [(False, True)], (
                "only the turn at the horizon may truncate"
            )
            with pytest.raises(Exception, match="reset"):
                env.step(env.encode_action(*self.unusable()))

    def test_restore_is_exact_at_every_step(self) -> None:
        for env, level, rng in self.episodes():
            env.reset(options={"state": level})
            plan = [self.any_action(rng) for _ in range(env.config.horizon)]
            snapshots, outcomes = [env.snapshot()], []
            for action in plan:
                outcomes.append(self.act(env, action))
                snapshots.append(env.snapshot())
                if outcomes[-1][2] or outcomes[-1][3]:
                    break
            fresh = self.env_type(env.config)
            for other in (env, fresh):
                for start in sorted(range(len(snapshots)), key=lambda _: rng.random()):
                    snapshot = pickle.loads(pickle.dumps(snapshots[start]))
                    frame = other.restore(snapshot)
                    if start:
                        assert frame.tobytes() == outcomes[start - 1][0], (
                            "restore must return the frame of the snapshot"
                        )
                        assert other.state_text() == outcomes[start - 1][5], (
                            "restore must return to the state of the snapshot"
                        )
                    assert not frame.flags.writeable, "frames must be read-only"
                    assert other.snapshot() == snapshots[start], "a restored snapshot must be equal to the original"
                    assert [self.act(other, action) for action in plan[start : len(outcomes)]] == outcomes[start:], (
                        "equal actions after restore must have equal outcomes"
                    )

    def test_frames_may_be_left_undrawn(self) -> None:
        for env, level, rng in self.episodes():
            silent = self.env_type(env.config)
            silent.draw_frames = False
            env.reset(options={"state": level})
            silent.reset(options={"state": level})
            over = False
            while not over:
                action = env.encode_action(*self.any_action(rng))
                frame, *rest = env.step(action)
                undrawn, *same = silent.step(action)
                assert same == rest, "outcomes must not depend on draw_frames"
                assert silent.state_text() == env.state_text(), "states must not depend on draw_frames"
                assert silent.frame_key() == env.frame_key(), "frame keys must not depend on draw_frames"
                assert undrawn.size == 0 or np.array_equal(undrawn, frame), "a frame that is left out must be NO_FRAME"
                assert np.array_equal(np.asarray(silent.render()), frame), "render must draw without draw_frames"
                over = bool(rest[1] or rest[2])

    def test_frame_keys_name_frames(self) -> None:
        """Equal keys mean equal frames: of one level as the contract says, and no key may be unhashable."""
        for env, level, rng in self.episodes():
            frames: dict[Any, bytes] = {}
            for _ in range(4):
                frame, _ = env.reset(options={"state": level})
                over = False
                while not over:
                    key = env.frame_key()
                    if key is not None:
                        assert frames.setdefault(key, frame.tobytes()) == frame.tobytes(), (
                            f"frame key {key!r} names two frames"
                        )
                    frame, _, terminated, truncated, _ = env.step(env.encode_action(*rng.choice(self.actions)))
                    over = terminated or truncated

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    def test_gymnasium_finds_nothing_to_say(self) -> None:
        for config in self.configs():
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                # Without a spec the checker cannot make a second environment and says so; the spec is checked below.
                warnings.filterwarnings("ignore", message=".*Not able to test alternative render modes.*")
                check_env(self.env_type(config))

    def test_gymnasium_makes_it_by_id(self) -> None:
        if self.gym_id is None:
            pytest.skip("this environment is not registered with gymnasium")
        env = gymnasium.make(f"pivot.environments:{self.gym_id}")
        assert type(env.unwrapped) is self.env_type, "gymnasium makes another class for gym_id"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
        env.close()
