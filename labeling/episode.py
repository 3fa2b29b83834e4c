"""Records shared by all modules of labelling: the failed episode, and the vocabulary of its target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..environments.base import actions_per_turn
from ..solvers.base import Case

PLAYED = ("played",)
"""Evidence of a rollout of PIVOT itself."""

Vocabulary = Literal["certificate", "paper"]
"""Label names of a target: those of the certificate, or those of the paper (see :mod:`.target`)."""


_LISTED = {
    **{"payloads": "payload", "infos": "info", "action_valid": "action_valid", "observations": "observation_text"},
    **{"reply_outcomes": "reply_outcome", "finish_reasons": "finish_reason"},
    "submission_outcomes": "submission_outcome",
}
"""Columns of steps by the field of an episode that lists their cells."""
EPISODE_COLUMNS = ("episode_id", "env", "env_version", "task_id", "instruction", "initial_state", "horizon")
"""Columns of texts and numbers that an episode has of its row."""
STEP_COLUMNS = (*_LISTED.values(), "frame_id", "next_frame_id", "inside_frame_ids")
"""Columns of steps that an episode is made of."""


@dataclass(frozen=True, slots=True)
class FailedEpisode:
    """One complete, failed episode with everything that labelling needs. ``T`` is the number of steps."""

    episode_id: str
    env: str
    env_version: str
    env_config: Mapping[str, Any]
    """The resolved settings of the environment; ``from_settings`` builds it again."""
    task_id: str
    instruction: str
    initial_state: str
    horizon: int
    """``T_max``, turns."""
    actions: Sequence[str]
    """Normalised action names, length T."""
    payloads: Sequence[str | None]
    """JSON of the parsed arguments, length T; None where the action has none."""
    rewards: Sequence[float]
    infos: Sequence[Mapping[str, Any]]
    """The logged ``info`` after each action, length T."""
    action_valid: Sequence[bool]
    frame_ids: Sequence[str]
    """Length T + 1: the frame before each action, then the terminal one."""
    inside: Sequence[Sequence[str]] = ()
    """Length T: the frames between the actions of each turn; empty where every turn has one action."""
    observations: Sequence[str] = ()
    """The text observation before each action, length T, or empty where none is known."""
    reply_outcomes: Sequence[str] = ()
    """Outcome of the reply grammar per reply, length T, or empty where unknown."""
    finish_reasons: Sequence[str] = ()
    """Reason why the generation of each reply ended, length T, or empty where unknown."""
    submission_outcomes: Sequence[str | None] = ()
    """Outcome of each submission, length T, or empty where unknown; None where actions submit nothing."""
    evidence: Sequence[str] = PLAYED
    """Confirmation of actions and level, words of ``Evidence`` (``rollouts/policies/imported.py``); empty for an
    import without any."""

    @classmethod
    def of(
        cls, episode: Mapping[str, Any], steps: Mapping[str, Sequence[Any]], evidence: Sequence[str] = PLAYED
    ) -> "FailedEpisode":
        """Return an episode from its own fields and the :data:`STEP_COLUMNS` of its steps, one at least."""
        cells: dict[str, Any] = {name: steps[column] for name, column in _LISTED.items()}
        inside = steps["inside_frame_ids"]
        return cls(
            **episode,
            **cells,
            frame_ids=[*steps["frame_id"], *steps["next_frame_id"][-1:]],
            inside=[tuple(cell or ()) for cell in inside] if any(inside) else (),
            evidence=evidence,
        )

    @property
    def num_steps(self) -> int:
        """Realised number of steps, ``T``."""
        return len(self.actions)

    def case(self) -> Case:
        """Return the episode as input of a solver."""
        most = actions_per_turn(self.env_config)
        return Case(self.initial_state, self.actions, self.horizon, self.infos, self.observations, most)
