"""Our own solvers, provers, policies and writers keep the promises that third parties' must keep."""

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pivot.core.errors import LevelError
from pivot.core.plugins import Settings
from pivot.environments.frozenlake import FrozenLakeEnv
from pivot.environments.frozenlake.prompt import PROMPT
from pivot.environments.sokoban import SokobanEnv
from pivot.environments.turns import Reply, Turn
from pivot.labeling.writers import TemplateWriter
from pivot.rollouts.policies.scripted import ScriptedPolicy
from pivot.solvers.base import Case, Proof, Prover, Verdict
from pivot.solvers.frozenlake import FrozenLakeSolver
from pivot.solvers.puzzle_provers import FrozenLakeProver, SokobanProver
from pivot.solvers.sokoban import SokobanSolver
from pivot.testing import EnvironmentContract, ExactSolverContract, PolicyContract, ProverContract, WriterContract

MOVES = tuple((name, None) for name in ("up", "down", "left", "right"))


class Rooms:
    env_type = SokobanEnv
    solver_type = SokobanSolver
    actions = MOVES


class Lakes:
    env_type = FrozenLakeEnv
    solver_type = FrozenLakeSolver
    actions = MOVES


class TestSokobanSolver(Rooms, ExactSolverContract):
    seeds = range(20)
    plays = 10
    alphabet = "# @+$*.-_\nx"


class TestFrozenLakeSolver(Lakes, ExactSolverContract):
    settings = ({}, {"size": 6, "frozen_probability": 0.6, "horizon": 14, "cell": 16})
    seeds = range(20)
    plays = 10
    alphabet = "SFFFHHHG\n@1 "


class TestSokobanProver(Rooms, ProverContract):
    prover_type = SokobanProver


class TestFrozenLakeProver(Lakes, ProverContract):
    prover_type = FrozenLakeProver


class TestScriptedPolicy(PolicyContract):
    env_type = FrozenLakeEnv
    prompt = PROMPT

    def make(self) -> ScriptedPolicy:
        return ScriptedPolicy()


class TestTemplateWriter(Lakes, WriterContract):
    seeds = (0, 1)

    def make(self) -> TemplateWriter:
        return TemplateWriter()


class _Counting(ScriptedPolicy):
    """Replies by the number of turns so far, of all episodes."""

    turns = 0

    async def reply(self, turn: Turn) -> Reply:
        self.turns += 1
        move = MOVES[self.turns % 4][0]
        await asyncio.sleep(0)
        return Reply(f"<think></think><action>{move}</action>")


class _CountingContract(TestScriptedPolicy):
    __test__ = False

    def make(self) -> ScriptedPolicy:
        return _Counting()


def test_a_policy_whose_replies_depend_on_other_episodes_breaks_its_contract() -> None:
    with pytest.raises(AssertionError, match="must not depend on concurrency"):
        _CountingContract().test_replies_depend_on_the_turn_alone()


class _StillLake(FrozenLakeEnv):
    """Says that nothing moved, as an environment does whose agent picks and drops in place."""

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "moved": False}


class _StillLakeContract(Lakes, EnvironmentContract):
    env_type = _StillLake
    info_keys = frozenset({"moved", "remaining_turns", "success"})
    reward_range = (-0.1, 9.9)


class _UnmovedContract(_StillLakeContract):
    unmoved_is_unchanged = True


def test_a_state_may_change_without_a_move_unless_the_contract_says_no() -> None:
    _StillLakeContract().test_steps_keep_their_promises()
    with pytest.raises(AssertionError, match="an action without effect must not change the state"):
        _UnmovedContract().test_steps_keep_their_promises()


# The contracts themselves: what breaks a promise is found.


class _Liar(FrozenLakeSolver):
    """Puts every pivot at step 0 under an exact certificate."""

    def certify(self, cases: Any) -> list[Any]:
        return [
            replace(each, pivot_step=0, certificate=replace(each.certificate, budget_before=case.horizon))
            for case, each in zip(cases, super().certify(cases), strict=True)
            if isinstance(each, Verdict)
        ]


class _Believer(Prover):
    config_type: ClassVar[type[Settings]] = Settings

    def prove(self, case: Case, verdict: Verdict) -> Proof:
        del case, verdict
        return Proof()


class _LiarsSolverContract(Lakes, ExactSolverContract):
    solver_type = _Liar


class _LiarsProverContract(Lakes, ProverContract):
    solver_type = _Liar
    prover_type = FrozenLakeProver


class _BelieversContract(Lakes, ProverContract):
    prover_type = _Believer


class _Cached(FrozenLakeSolver):
    """Keeps the first witness of a level for all its later episodes in a call."""

    def certify(self, cases: Any) -> list[Any]:
        first: dict[str, Any] = {}
        answers: Any = super().certify(cases)
        for case, answer in zip(cases, answers, strict=True):
            first.setdefault(case.initial_state, answer.witness)
        return [replace(answer, witness=first[case.initial_state]) for case, answer in zip(cases, answers, strict=True)]


class _Undecided(FrozenLakeProver):
    def prove(self, case: Case, verdict: Verdict) -> Proof:
        return Proof(undecided="too large") if super().prove(case, verdict).problems else Proof()


class _Counted(FrozenLakeEnv):
    """Names its pictures by the number of turns."""

    def frame_key(self) -> Any:
        return self._turn


class _Lenient(FrozenLakeEnv):
    """Starts a level of its own in place of a text that is none."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        try:
            return super().reset(seed=seed, options=options)
        except LevelError:
            return super().reset(seed=seed)


class _Keeping(FrozenLakeEnv):
    """Keeps its snapshots to itself."""

    def snapshot(self) -> bytes:
        snapshot = super().snapshot()
        self.kept: dict[bytes, bytes] = {**getattr(self, "kept", {}), snapshot[::-1]: snapshot}
        return snapshot[::-1]

    def restore(self, snapshot: bytes) -> Any:
        return super().restore(self.kept[snapshot])


class _KeepingContract(Lakes, EnvironmentContract):
    env_type = _Keeping


class _LenientContract(Lakes, EnvironmentContract):
    env_type = _Lenient
    bad_states: ClassVar = {"": "empty"}


class _CachedContract(Lakes, ExactSolverContract):
    solver_type = _Cached


class _UndecidedContract(Lakes, ProverContract):
    prover_type = _Undecided


class _CountedContract(Lakes, EnvironmentContract):
    env_type = _Counted


@pytest.mark.parametrize(
    ("promise", "message"),
    [
        (_CachedContract().test_answers_come_in_order_and_depend_on_nothing_else, "order of cases"),
        (_UndecidedContract().test_every_altered_field_is_found, "was not found"),
        (_CountedContract().test_frame_keys_name_frames, "names two frames"),
    ],
)
def test_order_doubt_and_counted_pictures_break_contracts(promise: Any, message: str) -> None:
    """Catch a contract that such a plugin keeps."""
    with pytest.raises(AssertionError, match=message):
        promise()


def test_snapshots_for_one_environment_alone_and_a_reset_that_takes_any_text_break_contracts() -> None:
    with pytest.raises(AttributeError, match="kept"):
        _KeepingContract().test_restore_is_exact_at_every_step()
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        _LenientContract().test_bad_states_are_refused_by_name()


def test_a_lying_solver_breaks_its_contract() -> None:
    with pytest.raises(AssertionError):
        _LiarsSolverContract().test_labels_are_those_of_brute_play()
    with pytest.raises(AssertionError):
        _LiarsProverContract().test_right_labels_hold()


def test_a_prover_that_believes_everything_breaks_its_contract() -> None:
    with pytest.raises(AssertionError, match="was not found"):
        _BelieversContract().test_every_altered_field_is_found()
