"""The stand-in's player of navigation: it knows the room and still strays, bumps into things and looks around.

From the exact geometry of the room it knows which moves lead towards success. Each turn it takes one of them or follows
a habit: a random action, a push against the last obstacle, a look around, or a reply without an action. Levels and
rollouts differ in how often it goes wrong; a rollout may also give up and repeat one fault until the turns run out.
"""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ...core.data import load_data
from ...core.errors import ConfigError
from ...core.identity import derive_seed
from ..backends import EMBEDDED
from ..base import EnvConfig
from ..turns import Player, PlayerHabits, Reply, Turn, bell, pick, uniforms
from .environment import NavigationEnv
from .moves import TURNS, Cell, Floor, direction, steps_to_target
from .room import floor_of
from .state import NavigationState, millimetres
from .world import ACTIONS

_TEXTS = load_data(__file__, "player.yaml")


class NavigationHabits(PlayerHabits):
    """Habits of the stand-in in navigation. Rates are probabilities per turn unless stated otherwise."""

    # Tuned at 120 tasks to the success and all-fail rates of the paper's untrained model (43.0 % and 5.8 %).
    skill: float = -0.85
    """Mean of the skill score; a score x means a move that leads on with probability ``(1 + x / (1 + abs(x))) / 2``."""
    level_spread: float = Field(default=0.1, ge=0)
    """Standard deviation of the part of the score that belongs to the level."""
    episode_spread: float = Field(default=0.7, ge=0)
    """Standard deviation of the part of the score that belongs to one rollout."""
    bad_format: float = Field(default=0.05, ge=0, le=1)
    """Share of replies without a usable action, or without a thought."""
    turning: float = Field(default=0.3, ge=0, le=1)
    """Share of the turns without a move towards success that look around."""
    pushing: float = Field(default=0.3, ge=0, le=1)
    """Share of the turns without such a move that walk into an obstacle, if there is one."""
    levelling: float = Field(default=0.35, ge=0, le=1)
    """Share of the turns with a tilted view that level it again."""
    lost_heart: float = Field(default=0.45, ge=0, le=1)
    """Share of rollouts that give up at some turn and repeat one fault."""


class NavigationPlayer(Player):
    """Imperfect walker; see the module docstring."""

    config_type: ClassVar[type[PlayerHabits]] = NavigationHabits
    settings: NavigationHabits

    def __init__(self, env: str, changes: dict[str, float]) -> None:
        """Set the habits; see the base class."""
        super().__init__(env, changes)
        self._ways: dict[tuple[int, Cell, Cell], dict[Cell, int]] = {}

    def check(self, config: EnvConfig) -> None:
        """Check that levels have embedded rooms; see the base class."""
        if config.simulator != EMBEDDED:
            raise ConfigError(
                "the scripted policy plays navigation in embedded rooms, whose geometry it knows; choose another "
                "--policy for other backends"
            )

    def reply(self, turn: Turn) -> Reply:
        """Answer one turn.

        Raises:
            ConfigError: the level has no embedded room.
        """
        self.check(turn.env.config)
        assert isinstance(turn.env, NavigationEnv)
        habits, tag = self.settings, turn.env.profile.answer_tag
        draws = uniforms(turn.seed)
        state = turn.env.state
        fault = self._fault(turn)
        move = self._choose(state, turn, draws, fault)
        thought = f"{pick(_TEXTS['looking'], draws[1])} {pick(_TEXTS['planning'], draws[2]).format(move=move)}"
        if fault == "format" or draws[4] < habits.bad_format:
            kinds, other = _TEXTS["badly"], pick(ACTIONS, draws[6])
            kind = pick(kinds[:-1] if fault == "format" else kinds, draws[5])
            return Reply(kind.format(tag=tag, thought=thought, move=move, other=other))
        return Reply(f"<think>{thought}</think><{tag}>{move}</{tag}>")

    def _fault(self, turn: Turn) -> str | None:
        """Return the fault that the rollout repeats by this turn, if any."""
        draws = uniforms(derive_seed(turn.episode_id, "heart"))
        begins = 3 + int(draws[1] * turn.env.config.horizon)
        if draws[0] >= self.settings.lost_heart or turn.t < begins:
            return None
        return pick(("format", "push", "turn", "back and forth"), draws[2])

    def _choose(self, state: NavigationState, turn: Turn, draws: Sequence[float], fault: str | None) -> str:
        assert state.room_json is not None
        floor = floor_of(state.room_json)
        here = millimetres(state.pose.x), millimetres(state.pose.z)
        rotation = int(state.pose.rotation)
        arrivals = {move: floor.step(here, direction(move, rotation)) for move in TURNS}
        blocked = [move for move, arrived in arrivals.items() if arrived is None]
        stuck = {"turn": ("rotateright", "rotateleft"), "back and forth": (("moveback", "moveahead")[turn.t % 2],)}
        if fault == "push" and blocked:
            stuck[fault] = tuple(blocked)
        if fault in stuck:
            return pick(stuck[fault], draws[8])
        if state.pose.horizon and draws[3] < self.settings.levelling:
            return _looks(state.pose.horizon)[0]
        if 2 * draws[7] < 1 + self._score(turn):
            return self._way_on(floor, state, here, arrivals, draws[8])
        if draws[9] < self.settings.turning:
            return pick(_looks(state.pose.horizon), draws[8])
        if blocked and draws[9] < self.settings.turning + self.settings.pushing:
            return pick(blocked, draws[8])
        return pick(ACTIONS, draws[8])

    def _score(self, turn: Turn) -> float:
        """Return the skill of a rollout at a level, squeezed into (-1, 1)."""
        habits = self.settings
        level = bell(uniforms(derive_seed("navigation difficulty", turn.task.initial_state)))
        form = bell(uniforms(derive_seed(turn.episode_id, "form")))
        score = habits.skill + habits.level_spread * level + habits.episode_spread * form
        return score / (1 + abs(score))

    def _way_on(
        self, floor: Floor, state: NavigationState, here: Cell, arrivals: dict[str, Cell | None], draw: float
    ) -> str:
        """Return a move that reduces the exact number of turns to success; forwards if possible."""
        target = millimetres(state.target.x), millimetres(state.target.z)
        key = id(floor), target, (here[0] % 500, here[1] % 500)
        if key not in self._ways:
            if len(self._ways) > 64:
                self._ways.clear()
            self._ways[key] = steps_to_target(floor, here, target)
        ways = self._ways[key]
        left = ways.get(here)
        closer = [
            move
            for move, arrived in arrivals.items()
            if arrived is not None and left is not None and ways.get(arrived, left) < left
        ]
        if not closer:
            return pick(tuple(TURNS), draw)
        return "moveahead" if "moveahead" in closer and draw < 0.7 else pick(closer, draw)


def _looks(horizon: float) -> tuple[str, ...]:
    """Return actions that look around; a view of the ceiling or the floor is levelled first."""
    if horizon:
        return ("lookdown",) if horizon < 0 else ("lookup",)
    return ("rotateright", "rotateleft", "rotateright", "rotateleft", "lookdown", "lookup")
