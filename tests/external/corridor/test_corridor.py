"""The inherited contracts: all that a plugin's author has to write to test it."""

from typing import ClassVar

from pivot.labeling.writers import TemplateWriter
from pivot.testing import EnvironmentContract, ExactSolverContract, PolicyContract, ProverContract, WriterContract
from pivot_corridor.environment import CorridorEnv
from pivot_corridor.policy import Sleepwalker
from pivot_corridor.prompt import PROMPT
from pivot_corridor.prover import CorridorProver
from pivot_corridor.solver import CorridorSolver


class Corridors:
    """Attributes that the contracts have in common."""

    env_type = CorridorEnv
    solver_type = CorridorSolver
    actions = (("left", None), ("right", None))
    settings = ({}, {"length": 5, "horizon": 3})


class TestEnvironment(Corridors, EnvironmentContract):
    """The environment keeps its promises."""

    answers: ClassVar = {"left": ("left", None), "right": ("right", None)}
    garbage = ("", "up", "left right", "go left")
    bad_states: ClassVar = {
        "": "0 cells",
        "..G": "0 agents",
        "A.AG": "2 agents",
        "A..": "no goal",
        "A#G": "'#' in cell 1",
        "A" + "." * 20 + "G": "22 cells",
    }
    equal_states = (("A.G", "A.G\n"),)
    bad_settings = (({"horizon": 0}, "horizon"), ({"length": 3}, "length"))
    info_keys = frozenset({"moved", "remaining_turns", "success"})
    reward_range = (-0.1, 9.9)


class TestSolver(Corridors, ExactSolverContract):
    """The solver agrees with brute play."""

    lost_mode = "fell"
    alphabet = "..oGA"


class TestProver(Corridors, ProverContract):
    """The prover finds every altered field."""

    prover_type = CorridorProver


class TestPolicy(Corridors, PolicyContract):
    """The policy answers every turn."""

    prompt = PROMPT

    def make(self) -> Sleepwalker:
        """Make the policy."""
        return Sleepwalker(right=0.4)


class TestWriter(Corridors, WriterContract):
    """The general sentences fit labels of this package."""

    def make(self) -> TemplateWriter:
        """Make the writer."""
        return TemplateWriter()
