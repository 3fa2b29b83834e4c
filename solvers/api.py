"""``pivot.certify``: the label of one episode, in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

from .. import plugins
from ..errors import CertifyError, ConfigError
from .base import Case, Solver, Unsolved, Verdict


def certify(
    env: str,
    initial_state: str,
    actions: Sequence[str],
    horizon: int,
    *,
    steps: Sequence[Mapping[str, Any]] = (),
    observations: Sequence[str] = (),
    **settings: Any,
) -> Verdict:
    """Find the pivot step of one failed episode and prove it.

    Args:
        env: environment name, such as ``sokoban``.
        initial_state: level text in the environment's state format (XSB for Sokoban).
        actions: normalised action names, one a step; ``invalid`` for a reply without a usable action.
        horizon: ``T_max``, the turn budget; budgets count from it, not from the number of actions.
        steps: the logged ``info`` of each step, for solvers that read the log; exact ones ignore it.
        observations: the text observation before each action, for solvers that read it (primitiveskill).
        settings: settings of the solver, such as ``max_states``.

    Returns:
        Pivot step, failure mode, certificate, witness plan and the actions that were still safe.

    Raises:
        CertifyError: the episode succeeded, does not fit the level, or the search hit its state cap.
        PluginError: there is no such solver.
    """
    kind: type[Solver] = plugins.load("solvers", env)
    try:
        checked = plugins.read_settings(kind.config_type, settings, f"setting of solver {env}: ")
    except ConfigError as error:
        raise CertifyError(str(error)) from error
    answer = kind(checked).certify([Case(initial_state, list(actions), horizon, steps, observations)])[0]
    if isinstance(answer, Unsolved):
        raise CertifyError(f"{answer.reason}: {answer.detail}")
    return answer
