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
            unseeded = [(first.reset(), second.reset(), first.state_text(), second.state_text()) for _ in range(4)]
            assert all(each[2] == each[3] for each in unseeded), "unseeded resets must repeat after the same seed"
            assert len({each[2] for each in unseeded}) > 1, "unseeded resets must give different levels"

    def test_recorded_seed_makes_the_level_at_the_first_try(self) -> None:
        for config in self.configs():
            name = self.env_type.profile.name
            first_try = config.model_copy(update={"max_tries": 1}) if hasattr(config, "max_tries") else config
            for seed in self.seeds:
                task = self.env_type.make_task(config, seed)
                assert task == self.env_type.make_task(config, seed), "a seed must give one task"
                assert task.seed is not None, "a generated level has a seed"
                assert task.task_id == f"{name}-{config.digest()}-{task.seed}"
                same = self.env_type.make_task(first_try, task.seed)
                assert same.initial_state == task.initial_state, "task.seed must give the level at the first try"
                env = self.env_type(first_try)
                env.reset(seed=task.seed)
                assert env.state_text() == task.initial_state, "reset(seed=task.seed) must give the task's level"

    def test_task_text_restores_the_level(self) -> None:
        for config in self.configs():
            env = self.env_type(config)
            for seed in self.seeds:
                task = self.env_type.make_task(config, seed)
                frame, info = env.reset(options={"state": task.initial_state, "instruction": task.instruction})
                by_seed, _ = self.env_type(config).reset(seed=task.seed)
                assert np.array_equal(frame, by_seed), "a level must look the same by its text and by its seed"
                assert info["remaining_turns"] == config.horizon, "reset must give all turns as remaining_turns"
                assert env.state_text() == task.initial_state, "reset must restore the state text"
                canonical = self.env_type.canonical_state(task.initial_state)
                assert canonical == task.initial_state, "the state text of a task must be canonical"

    def test_canonical_state_ignores_what_does_not_matter(self) -> None:
        for one, other in self.equal_states:
            canonical = self.env_type.canonical_state(one)
            assert self.env_type.canonical_state(other) == canonical, "equal_states must have one canonical text"
            assert self.env_type.canonical_state(canonical) == canonical, "a canonical text must stay as it is"

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
        assert len({pickle.dumps(member) for member in encoded}) == len(encoded), "encoded actions must differ"
        for answer, (name, payload) in self.answers.items():
            parsed = env.parse_action(answer)
            assert parsed is not None, f"the answer {answer!r} was not read"
            assert (parsed.name, parsed.payload) == (name, payload), f"the answer {answer!r} was read as another action"
            env.encode_action(parsed.name, parsed.payload)
        answered = {action for action, _ in self.answers.values()}
        assert answered == {action for action, _ in self.actions}, "answers must cover the actions, and no others"

    def test_garbage_is_no_action(self) -> None:
        env = self.env_type()
        for answer in (*self.garbage, self.env_type.profile.unusable_action):
            assert env.parse_action(answer) is None, f"{answer!r} was read as an action"
        with pytest.raises(ValueError, match="no_such_action"):
            env.encode_action("no_such_action")

    def test_unusable_action_costs_a_turn_and_changes_nothing(self) -> None:
        for env, level, rng in self.episodes():
            frame, _ = env.reset(options={"state": level})
            played = rng.randrange(env.config.horizon)
            for _ in range(played):
                frame, _, terminated, truncated, _ = env.step(env.encode_action(*rng.choice(self.actions)))
                if terminated or truncated:
                    break
            else:
                before = env.state_text(), env.frame_key()
                for left in range(env.config.horizon - played - 1, -1, -1):
                    after, reward, terminated, truncated, info = env.step(env.encode_action(*self.unusable()))
                    assert np.array_equal(frame, after), "an unusable action must not change the frame"
                    assert (env.state_text(), env.frame_key()) == before, "an unusable action must not change the state"
                    assert float(reward) <= 0, "an unusable action must not be rewarded"
                    assert info["remaining_turns"] == left, "an unusable action must cost one turn"
                    assert not info.get("moved", False), "an unusable action must not move"
                    assert not terminated, "an unusable action must not terminate"
                    assert truncated == (left == 0), "the last turn, and no other, must truncate"
                with pytest.raises(Exception, match="reset"):
                    env.step(env.encode_action(*self.unusable()))

    # --- episodes ----------------------------------------------------------------------------------------------------

    def test_steps_keep_their_promises(self) -> None:
        low, high = self.reward_range
        for env, level, rng in self.episodes():
            frame, _ = env.reset(options={"state": level})
            self.check_frame(env, frame)
            left, terminated, truncated = env.config.horizon, False, False
            while not (terminated or truncated):
                left -= 1
                before = env.state_text()
                frame, reward, terminated, truncated, info = env.step(env.encode_action(*self.any_action(rng)))
                self.check_frame(env, frame)
                assert isinstance(reward, float), "the reward must be a float"
                assert low - 1e-9 <= reward <= high + 1e-9, "the reward is outside reward_range"
                assert set(info) == self.info_keys, "info must hold info_keys and no others"
                kinds = {type(value) for value in info.values()}
                assert kinds <= {bool, int, float, str, type(None)}, f"values of info must be plain: {info}"
                assert info["remaining_turns"] == left, "remaining_turns must fall by one per step"
                assert type(terminated) is type(truncated) is bool, "terminated and truncated must be bool"
                assert not (terminated and truncated), "an episode must not terminate and truncate at once"
                if env.profile.has_success_bit:
                    assert type(info["success"]) is bool, "success must be a bool"
                    assert terminated or not info["success"], "a success must terminate"
                unchanged = info.get("last_action_success") is False
                if unchanged or (self.unmoved_is_unchanged and info.get("moved") is False):
                    assert env.state_text() == before, f"an action without effect must not change the state: {info}"
            assert terminated or left == 0, "an episode must end terminated, or at the horizon"

    @staticmethod
    def check_frame(env: PivotEnv, frame: Frame) -> None:
        assert frame in env.observation_space, "the frame is not in observation_space"
        assert not frame.flags.writeable, "frames must be read-only"
        rendered = env.render()
        assert isinstance(rendered, np.ndarray), "render must return an array"
        assert np.array_equal(frame, rendered), "render must return the last frame"

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
                        seen = frame.tobytes(), other.state_text()
                        assert seen == outcomes[start - 1][::5], (
                            "restore must return to frame and state of the snapshot"
                        )
                    assert not frame.flags.writeable, "frames must be read-only"
                    assert other.snapshot() == snapshots[start], "a restored snapshot must be equal to the original"
                    again = [self.act(other, action) for action in plan[start : len(outcomes)]]
                    assert again == outcomes[start:], "equal actions after restore must have equal outcomes"

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
                    if (key := env.frame_key()) is not None:
                        first = frames.setdefault(key, frame.tobytes())
                        assert first == frame.tobytes(), f"frame key {key!r} names two frames"
                    frame, _, terminated, truncated, _ = env.step(env.encode_action(*rng.choice(self.actions)))
                    over = terminated or truncated

    # --- gymnasium ---------------------------------------------------------------------------------------------------

    def test_gymnasium_finds_nothing_to_say(self) -> None:
        made = [gymnasium.make(f"pivot.environments:{self.gym_id}").unwrapped] if self.gym_id else []
        assert all(type(env) is self.env_type for env in made), "gymnasium makes another class for gym_id"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Without a spec the checker cannot make a second environment, and says so.
            warnings.filterwarnings("ignore", message=".*Not able to test alternative render modes.*")
            for env in (*made, *(self.env_type(config) for config in self.configs())):
                check_env(env)
                env.close()
