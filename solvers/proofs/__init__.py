"""The second, independent opinion on every label: what ``pivot verify`` asks (spec section 3).

Each prover is a plugin of the group ``pivot.provers``, under the name of its environment.
"""

from collections.abc import Mapping
from typing import Any

from ... import plugins
from ...errors import CertifyError
from ..base import Case, Proof, Prover, Verdict


def prover_of(env: str, solver_config: Mapping[str, Any] | None = None, *, quick: bool = False) -> Prover | None:
    """Return the prover of an environment; None where its labels cannot be proved a second time.

    With ``quick`` it leaves undecided what would hold up the making of labels.

    Raises:
        PluginError: there is one, but it cannot be used.
    """
    if env not in plugins.names("provers"):
        return None
    kind: type[Prover] = plugins.load("provers", env)
    return kind(solver_config, kind.quick() if quick else None)


def prove(env: str, case: Case, verdict: Verdict, solver_config: Mapping[str, Any] | None = None) -> Proof:
    """Re-prove one label; use :func:`prover_of` for many of them.

    Raises:
        CertifyError: labels of this environment cannot be proved a second time.
    """
    prover = prover_of(env, solver_config)
    if prover is None:
        known = ", ".join(plugins.names("provers"))
        raise CertifyError(f"labels of {env!r} cannot be proved a second time; provers: {known}")
    return prover.prove(case, verdict)
