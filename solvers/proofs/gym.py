"""Prover of the labels of gymnasium environments: by replay from ``reset`` alone, with all attributes as the key."""

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar

from pydantic import Field

from ...errors import CertifyError, LevelError
from ...plugins import Settings
from ..base import Case, Proof, Prover, Verdict
from ..closure.game import IDLE, Level, level_state, succeeds
from ..closure.packages import blind
from .replay import MAX_STEPS, Game, prove


class ReplaySettings(Settings):
    """Settings of the prover."""

    max_steps: int = Field(default=MAX_STEPS, ge=1)
    """Maximum number of steps of the environment per level; larger levels stay undecided."""


class GymProver(Prover):
    """Prover of any environment; it keeps the last level, because rollouts of a level are proved in succession."""

    config_type: ClassVar[type[Settings]] = ReplaySettings
    settings: ReplaySettings

    def __init__(self, solver_config: Mapping[str, Any] | None = None, settings: Settings | None = None) -> None:
        """Create a prover; it ignores the solver's settings, because exact labels do not depend on them."""
        super().__init__(solver_config, settings)
        self._game = lru_cache(maxsize=1)(self._make)

    @classmethod
    def quick(cls) -> Settings:
        """Return settings that limit the time per level to about a second."""
        return ReplaySettings(max_steps=50_000)

    def _make(self, text: str) -> Game:
        level = Level.read(text)
        game = level.game()
        blind(game.env)
        return Game(
            game.env,
            {name: game.action(name) for name in level.actions},
            key=partial(level_state, level),
            won=partial(succeeds, level),
            seed=level.seed,
            options=game.options,
            clock=level.clock,
            idle=IDLE,
            max_steps=self.settings.max_steps,
        )

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        """Return the proof of a label, or all its errors."""
        try:
            return prove(self._game(case.initial_state), case.actions, case.horizon, verdict)
        except CertifyError as error:
            return Proof(undecided=str(error))
        except LevelError as error:
            return Proof((f"could not be re-proved: {error}",))
        except Exception as error:  # noqa: BLE001 - foreign code
            return Proof((f"the environment raised {type(error).__name__}: {error}",))
