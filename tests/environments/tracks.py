"""A track of six cells, and variants that each signal success in a different way, as in a user's package."""

from typing import Any, ClassVar

import gymnasium
import numpy as np

LEFT, RIGHT, DIG = range(3)
GOAL, TRAP, WALK = "goal", "trap", "walk"


class Track(gymnasium.Env[Any, Any]):
    """The goal is cell 5, digging in cell 2 falls into a trap, and the seed chooses among cells 0 to 2."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 - of the base class
    default: ClassVar[str | None] = None
    """Message with which the default rule is refused; None where it is correct."""
    rule: ClassVar[str] = ""
    """Correct rule; empty where the default rule is correct."""
    illegal: ClassVar[Any] = "refuse"
    members: ClassVar[dict[str, Any]] = {"action_0": 0, "action_1": 1, "action_2": 2}
    """Arguments of ``step`` by the name of the action; a fourth does nothing."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Discrete(6)
        self.cell, self.event, self.visited, self.seed = 0, WALK, (0,), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed = seed or 0
        self.cell, self.event = self.seed % 3, WALK
        self.visited = (self.cell,)
        return self.cell, self.start_info() | self.mask()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        new = False
        self.cell = max(0, self.cell + {LEFT: -1, RIGHT: 1}.get(int(action), 0))
        self.cell = min(self.cell, 5)
        self.event = GOAL if self.cell == 5 else TRAP if action == DIG and self.cell == 2 else WALK
        if self.counts_visits and self.cell not in self.visited:
            new, self.visited = True, tuple(sorted((*self.visited, self.cell)))
        return self.cell, self.reward(new), self.terminated(), self.truncated(), self.info()

    counts_visits: ClassVar[bool] = False

    def mask(self) -> dict[str, Any]:
        return {}

    def start_info(self) -> dict[str, Any]:
        return {}

    def reward(self, new: bool) -> Any:
        del new
        return float(self.event == GOAL)

    def terminated(self) -> bool:
        return self.event != WALK

    def truncated(self) -> bool:
        return False

    def info(self) -> Any:
        return {}

    def legal(self, place: int) -> bool:
        """Whether the action of a place is allowed now."""
        del place
        return True

    def truth(self) -> bool:
        """Whether the last step reached what this environment means by success."""
        return self.event == GOAL

    def state(self) -> Any:
        return self.cell, self.visited if self.counts_visits else ()

    def render(self) -> Any:
        picture = np.zeros((8, 48, 3), np.uint8)
        picture[:, 8 * self.cell : 8 * self.cell + 8] = 255
        return picture


class Paid(Track):
    """A track on which only the goal pays."""


class Coins(Track):
    """A track with a coin in every cell and one for the goal."""

    counts_visits = True
    default = "that do not end the episode pay a positive reward"
    rule = "terminated and reward>0"

    def reward(self, new: bool) -> Any:
        return float(new)


class AllCoins(Track):
    """The episode ends in success when cells 3 and 5 were both visited; each pays."""

    counts_visits = True
    default = "pay a positive reward .*terminated if every end is success"
    rule = "terminated"

    def reward(self, new: bool) -> Any:
        return float(new and self.cell in (3, 5))

    def terminated(self) -> bool:
        return self.truth()

    def truth(self) -> bool:
        return {3, 5} <= set(self.visited)


class Progress(Track):
    """A track that pays for every new cell."""

    counts_visits = True
    default = r"pay a positive reward \(0.1; .*'terminated and reward>=1.0'"
    rule = "terminated and reward>=1.0"

    def reward(self, new: bool) -> Any:
        return 1.0 if self.event == GOAL else 0.1 * new


class Living(Track):
    """A track that pays 1 per step and 10 for the goal."""

    default = "pay a positive reward"
    rule = "reward >= 10"

    def reward(self, new: bool) -> Any:
        return 10.0 if self.event == GOAL else 1.0


class Survival(Track):
    """A track that pays 1 per step and has no goal, so that success needs a rule of the user."""

    default = "which is nothing that a search proves if staying alive is the task"
    rule = f"{__name__}:arrived"

    def reward(self, new: bool) -> Any:
        return 1.0


class Negative(Track):
    """A track on which a step costs 1 and the trap 10."""

    default = r"no step succeeds; .*'terminated and reward>=-1.0' if only ends with the highest"
    rule = "terminated and reward>=-1.0"

    def reward(self, new: bool) -> Any:
        return -10.0 if self.event == TRAP else -1.0


class Cliff(Track):
    """A track on which every step costs one and only the goal ends the episode."""

    default = r"no step succeeds; .* with the rewards -1; .*terminated if every end is success"
    rule = "terminated"

    def reward(self, new: bool) -> Any:
        return -1.0

    def terminated(self) -> bool:
        return self.event == GOAL


class GreedyTrap(Track):
    """The trap pays more than the goal."""

    default = r"ends of the episode pay different positive rewards; .*module:function"
    rule = f"{__name__}:arrived"

    def reward(self, new: bool) -> Any:
        return {GOAL: 1.0, TRAP: 2.0, WALK: 0.0}[self.event]


class TwoGoals(Track):
    """A track whose trap is a smaller second goal."""

    default = r"ends of the episode pay different positive rewards; .*'terminated and reward>0' if all"
    rule = "terminated and reward > 0"

    def reward(self, new: bool) -> Any:
        return {GOAL: 1.0, TRAP: 0.5, WALK: 0.0}[self.event]

    def truth(self) -> bool:
        return self.event != WALK


class PaidEarly(Track):
    """A track whose goal pays one step before the episode ends; the last step pays nothing."""

    default = "steps that do not end the episode pay a positive reward"
    rule = "reward>0"

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        arrived = self.event == GOAL
        answer = super().step(action)
        self.event = WALK if arrived else self.event
        return (*answer[:1], 0.0 if arrived else answer[1], arrived or self.event == TRAP, *answer[3:])

    def state(self) -> Any:
        return self.cell, self.event


class Truncating(Track):
    """The goal truncates the episode."""

    default = "steps that do not end the episode pay a positive reward"
    rule = "reward>=1"

    def terminated(self) -> bool:
        return self.event == TRAP

    def truncated(self) -> bool:
        return self.event == GOAL


class Flagged(Track):
    """A track with a flag, because its reward is misleading: the trap pays."""

    def reward(self, new: bool) -> Any:
        return {GOAL: 0.0, TRAP: 2.0, WALK: 0.5}[self.event]

    def info(self) -> Any:
        return {"success": np.bool_(self.event == GOAL)}


class FlaggedAtTheEnd(Flagged):
    """The flag is set on success alone."""

    def info(self) -> Any:
        return {"is_success": True} if self.event == GOAL else {}


class FlaggedAtEnds(Flagged):
    """A track whose flag is set only on ends, and whose success does not end the episode."""

    def terminated(self) -> bool:
        return False

    def info(self) -> Any:
        return {} if self.event == WALK else {"is_success": self.event == GOAL}


class FlaggedAtStart(Flagged):
    """The flag is also set by reset, and stays True once the goal was reached."""

    def start_info(self) -> dict[str, Any]:
        return {"success": False}

    def info(self) -> Any:
        return {"success": self.event == GOAL}


class FlaggedByText(Flagged):
    """The flag is a word, and every word is true."""

    default = r"info\['success'\]: found 'no' of type str, expected True or False"
    rule = f"{__name__}:arrived"

    def info(self) -> Any:
        return {"success": "yes" if self.event == GOAL else "no"}


class TwoFlags(Flagged):
    """A track with two flags: one reports that an action worked, the other that the goal was reached."""

    default = "info has both 'success' and 'is_success', which differ"
    rule = "info.is_success"

    def info(self) -> Any:
        return {"success": self.cell > 0, "is_success": self.event == GOAL}


class ActionFlag(Track):
    """A track whose flag reports that an action worked, which is always so."""

    default = "every first action succeeds"
    rule = "terminated and reward>0"

    def info(self) -> Any:
        return {"success": True}


class DeadFlag(Track):
    """The flag is never True."""

    default = "info.success is never True, but .* pay a positive reward"
    rule = "terminated and reward>0"

    def info(self) -> Any:
        return {"success": False}


class OwnFlag(Track):
    """A track with a flag of another name, whose trap pays as much as the goal."""

    default = "no step succeeds"
    rule = "info.goal reached"

    def reward(self, new: bool) -> Any:
        return -1.0

    def info(self) -> Any:
        return {"goal reached": self.event == GOAL}


class NoInfo(Track):
    """``info`` is None."""

    default = "info: found None, expected a mapping"
    rule = "terminated and reward>0"

    def info(self) -> Any:
        return None


class Shifted(Track):
    """Numbers of actions begin with 1, and come as the action space samples them."""

    members: ClassVar[dict[str, Any]] = {f"action_{each}": np.int64(each) for each in (1, 2, 3)}
    sampled: ClassVar[type] = np.int64

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Discrete(3, start=1)

    def place(self, action: Any) -> int:
        return int(action) - 1

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        assert type(action) is self.sampled, action
        assert self.action_space.contains(action), action
        return super().step(self.place(action))


class Arrays(Shifted):
    """Actions are arrays of two numbers, the first from 1 on."""

    members: ClassVar[dict[str, Any]] = {f"action_{a}_{b}": np.array([a, b]) for a in (1, 2) for b in (0, 1)}
    sampled = np.ndarray

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 2], start=[1, 0])

    def place(self, action: Any) -> int:
        place = 2 * (int(action[0]) - 1) + int(action[1])
        action[:] = 0  # changes its argument, which must not affect the caller
        return place


class Pairs(Shifted):
    """Actions are tuples of two numbers, the second from 1 on, and a mask for each allows no digging but in cell 2."""

    members: ClassVar[dict[str, Any]] = {f"action_{a}_{b}": (np.int64(a), np.int64(b)) for a in (0, 1) for b in (1, 2)}
    sampled = tuple
    illegal = "invalid"

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = gymnasium.spaces.Tuple(
            (gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2, start=1))
        )

    def place(self, action: Any) -> int:
        return 2 * int(action[0]) + int(action[1]) - 1

    def legal(self, place: int) -> bool:
        return place < 2 or self.cell == 2

    def mask(self) -> dict[str, Any]:
        return {"action_mask": (np.array([1, self.cell == 2], np.int8), np.ones(2, np.int8))}

    def info(self) -> Any:
        return self.mask()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        if not self.legal(self.place(action)):
            raise ValueError("not here")
        return super().step(action)


class Masked(Track):
    """A mask excludes steps off the track, and digging but in cell 2; what it excludes would win at once."""

    illegal = "invalid"

    def legal(self, place: int) -> bool:
        return self.cell > 0 if place == LEFT else place == RIGHT or self.cell == 2

    def mask(self) -> dict[str, Any]:
        return {"action_mask": np.array([self.legal(each) for each in range(3)], np.int8)}

    def info(self) -> Any:
        return self.mask()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        if not self.legal(int(action)):
            self.cell = 4
            action = RIGHT
        return super().step(action)


class Raising(Masked):
    """A track without a mask, on which illegal actions raise and change nothing."""

    def mask(self) -> dict[str, Any]:
        return {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        if not self.legal(int(action)):
            raise ValueError("not here")
        return super().step(action)


class RaisingLate(Raising):
    """An illegal action raises, but counts."""

    default = "raised ValueError: not here"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.mistakes = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        self.mistakes += not self.legal(int(action))
        return super().step(action)


class Unequal(Track):
    """From the level of seed 5 on, walking pays."""

    def reward(self, new: bool) -> Any:
        return float(self.event == GOAL) or 0.5 * (self.seed >= 5 and self.cell == 3)


class UnequalEnds(Track):
    """From the level of seed 5 on, the goal does not end the episode."""

    def info(self) -> Any:
        return {"success": self.event == GOAL}

    def terminated(self) -> bool:
        return self.event == TRAP or (self.event == GOAL and self.seed < 5)


class UnequalFlags(Track):
    """A track on which, from the level of seed 5 on, a flag denies a success."""

    def info(self) -> Any:
        return {"success": False} if self.seed >= 5 else {}


class LostFlags(FlaggedAtTheEnd):
    """From the level of seed 5 on, nothing sets the flag any more."""

    def info(self) -> Any:
        return super().info() if self.seed < 5 else {}


def arrived(env: Any, reward: float, terminated: bool, info: Any) -> bool:
    """Return whether the agent is at its goal."""
    del reward, terminated, info
    return env.unwrapped.truth()


def kinds(base: type[Track] = Track) -> list[type[Track]]:
    """All tracks."""
    return [each for kind in base.__subclasses__() for each in (kind, *kinds(kind))]


CHANGING = (Unequal, UnequalEnds, UnequalFlags, LostFlags)
"""Tracks whose later levels contradict the first five."""
for _kind in kinds():
    gymnasium.register(f"Track{_kind.__name__}-v0", entry_point=f"{__name__}:{_kind.__name__}")
