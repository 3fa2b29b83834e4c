"""Provers, which re-prove labels independently of the solvers for ``pivot verify``.

Each prover is a plugin of the group ``pivot.provers`` with the name of its environment.
"""

from collections.abc import Mapping
from typing import Any

from ..core import plugins
from ..core.errors import CertifyError
from .base import Case, Proof, Prover, Verdict


def prover_of(env: str, solver_config: Mapping[str, Any] | None = None, *, quick: bool = False) -> Prover | None:
    """Return the prover of an environment; None if there is none.

    With ``quick``, it leaves labels undecided whose proof would slow down labelling.

    Raises:
        PluginError: the prover cannot be used.
    """
    if env not in plugins.names("provers"):
        return None
    kind: type[Prover] = plugins.load("provers", env)
    return kind(solver_config, kind.quick() if quick else None)


def prove(env: str, case: Case, verdict: Verdict, solver_config: Mapping[str, Any] | None = None) -> Proof:
    """Re-prove one label; use :func:`prover_of` for many of them.

    Raises:
        CertifyError: the environment has no prover.
    """
    prover = prover_of(env, solver_config)
    if prover is None:
        names = ", ".join(plugins.names("provers"))
        raise CertifyError(f"environment {env!r} has no prover; provers: {names}")
    return prover.prove(case, verdict)
