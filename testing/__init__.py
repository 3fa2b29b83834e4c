"""Contract tests that authors of plugins inherit, as pytest classes.

A test module holds one subclass for each part, which names the part and a few examples; pytest then runs every promise
on it. PIVOT's own parts pass the same classes. Install what they need with ``pip install 'pivot-vlm[testing]'``
(pytest and hypothesis); nothing else of PIVOT imports this package.

| part | class |
|---|---|
| environment | :class:`EnvironmentContract` |
| solver against environment | :class:`SolverContract`, or :class:`ExactSolverContract` where distances are exact |
| prover against solver | :class:`ProverContract` |
| policy | :class:`PolicyContract` |
| guidance writer | :class:`WriterContract` |
"""

import pytest

# Failed assertions then show their values, as in a test module; this has to be said before the import.
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in ("environment", "solver", "prover", "parts")))

from .environment import EnvironmentContract  # noqa: E402
from .episodes import FailedEpisodes  # noqa: E402
from .parts import PolicyContract, WriterContract  # noqa: E402
from .prover import ProverContract, altered  # noqa: E402
from .solver import ExactSolverContract, SolverContract, StepOracle  # noqa: E402

__all__ = [
    "EnvironmentContract",
    "ExactSolverContract",
    "FailedEpisodes",
    "PolicyContract",
    "ProverContract",
    "SolverContract",
    "StepOracle",
    "WriterContract",
    "altered",
]
