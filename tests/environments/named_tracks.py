"""Tracks whose trap pays as much as the goal, or whose flag says that a part of the task is done."""

from typing import Any

import gymnasium
import numpy as np
from pivot.tests.environments import tracks
from pivot.tests.environments.tracks import GOAL, TRAP, WALK, Track


class Named(Track):
    """A track whose trap pays as much as the goal; only a word in ``info`` distinguishes trap and goal."""

    default = r"differ in info.outcome: .*'arrived', 'fallen'; .*'info.outcome==arrived', 'info.outcome==fallen'"
    rule = "info.outcome==arrived"

    def reward(self, new: bool) -> Any:
        return float(self.event != WALK)

    def info(self) -> Any:
        return {"cell": self.cell} | {GOAL: {"outcome": "arrived"}, TRAP: {"outcome": "fallen"}, WALK: {}}[self.event]


class Numbered(Named):
    """A track on which a number in a part of ``info`` distinguishes trap and goal; all steps have one."""

    default = r"differ in info.result.code: '1', '2'; .*'info.result.code==1'"
    rule = "info.result.code==1"

    def info(self) -> Any:
        return {"cell": self.cell, "result": {"code": np.int64((WALK, GOAL, TRAP).index(self.event))}}


class Alive(Named):
    """The number of lives at the goal is that of every walk."""

    default = r"differ in info.lives: '0', '3'; .*'info.lives==0', 'terminated and info.lives==3'"
    rule = "terminated and info.lives==3"

    def info(self) -> Any:
        return {"lives": 3 * (self.event != TRAP)}


class Crashing(Named):
    """A key that only the trap sets."""

    default = r"differ in info.crash: '2', 'nothing'; .*'info.crash==2', 'terminated and info.crash==nothing'"
    rule = "terminated and info.crash==nothing"

    def info(self) -> Any:
        return {"crash": self.cell} if self.event == TRAP else {}


class NamedInParts(Named):
    """A track on which a flag in a part of ``info`` distinguishes trap and goal."""

    default = r"info.stats.solved is False at an end that pays .* is info.stats.solved"
    rule = "info.stats.solved"

    def info(self) -> Any:
        return {"stats": {"solved": self.event == GOAL}}


class NamedInText(Named):
    """A track on which a word of the observation distinguishes trap and goal."""

    default = r"differ in observation.news: 'arrived', 'fallen'"
    rule = f"{tracks.__name__}:arrived"

    def reset(self, **settings: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**settings)
        return self.shown(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        _, *rest = super().step(action)
        return (self.shown(), *rest)  # pyright: ignore[reportReturnType]

    def info(self) -> Any:
        return {}

    def shown(self) -> Any:
        return {"cell": self.cell, "news": {GOAL: "arrived", TRAP: "fallen", WALK: "walks"}[self.event]}


class NamedInNumbers(NamedInText):
    """A track on which a number of the observation distinguishes trap and goal."""

    default = r"differ in observation\[1\]: '1', '2'; .*'terminated and reward>0' if all of them are"

    def shown(self) -> Any:
        return np.array([self.cell, (WALK, GOAL, TRAP).index(self.event)], np.int8)


class FlaggedPart(Track):
    """The flag is True where a part of the task is done, in cell 3, and the episode goes on."""

    default = "info.success is True on steps that do not end the episode .*, but others end it; .*'terminated and"
    rule = "terminated and reward>0"

    def info(self) -> Any:
        return {"success": self.cell == 3}


class FlaggedWay(FlaggedPart):
    """A :class:`FlaggedPart` on which no episode ends before that part is done."""

    rule = "terminated"
    default = "info.success is True on steps that do not end the episode .*, but others end it; .*terminated if"

    def terminated(self) -> bool:
        return self.event == GOAL


class BothNamed(Track):
    """A track whose ``info`` names the last place, which differs among ends, but says nothing about success."""

    def terminated(self) -> bool:
        return self.event == GOAL or (self.event == TRAP and self.seed < 0)

    def info(self) -> Any:
        return {"cell": self.cell, "visited": len(self.visited), "event": self.event, "message": f"cell {self.cell}"}


for _kind in (Named, *tracks.kinds(Named), FlaggedPart, FlaggedWay, BothNamed):
    gymnasium.register(f"Track{_kind.__name__}-v0", entry_point=f"{__name__}:{_kind.__name__}")
