"""The one module that authors of plugins import from: contracts, what they are asked and answer, and errors.

``from pivot.plugin import PivotEnv, Solver, Verdict``. The names below are stable (docs/reference/stability.md);
modules that are not listed there may change with any release. Plugins inherit the tests in :mod:`pivot.testing`.
"""

from typing import TYPE_CHECKING, Any

from .core.errors import (
    CertifyError,
    ConfigError,
    GenerationError,
    LevelError,
    PivotError,
    PluginError,
    PolicyError,
    ServerGoneError,
    SimulatorError,
)
from .core.identity import derive_seed, digest
from .core.messages import EncodedFrame, PromptMessages
from .core.plugins import Settings
from .environments.base import NO_FRAME, EnvConfig, EnvProfile, Frame, ParsedAction, PivotEnv, Source, Task
from .environments.turns import HistoryEntry, Player, PlayerHabits, Reply, StudentPrompt, Turn, uniforms
from .labeling.base import Draft, Filter, Guidance, GuidanceRequest, GuidanceWriter, Objection
from .labeling.domains import Domain, Failure
from .labeling.episode import FailedEpisode
from .labeling.filters import GuidanceFilter
from .labeling.statements import Choice, Offer, Statement, statement
from .labeling.writers.concurrent import ConcurrentWriter, PreparedRequest
from .models.base import Backend, ChatAnswer, ChatModel, ChatRequest, ModelOptions, Sampling
from .rollouts.base import Policy, TaskRollouts
from .solvers.base import (
    Case,
    Certificate,
    CertificateKind,
    CertificateUnit,
    DistanceMap,
    ExactSolver,
    Proof,
    Prover,
    Solver,
    SolverSettings,
    Unsolved,
    Verdict,
)

if TYPE_CHECKING:
    from .core.storage import FileRecord, Stat, Storage, Url
    from .datasets.export.base import Exporter, LabelledEpisode, LabelledShard
    from .datasets.store.schema import Column, TableSchema
    from .flows.engines.base import Engine, EngineSettings, WorkerPool
    from .flows.engines.cluster import ClusterPool, carry_out
    from .interop.base import Importer, Place, UnreadableError
    from .interop.episode import RecordedEpisode
    from .labeling.hindsight import Hindsight
    from .training.policy_rl.config import RlConfig
    from .training.policy_rl.engines.base import GenerationOptions, Generator, Trained
    from .training.policy_rl.extensions.advantages import AdvantageEstimator, complete_episodes
    from .training.policy_rl.extensions.objectives import Objective
    from .training.policy_rl.hindsight.contexts import Arm
    from .training.policy_rl.losses import TokenBatch

__all__ = [
    "NO_FRAME",
    "AdvantageEstimator",
    "Arm",
    "Backend",
    "Case",
    "Certificate",
    "CertificateKind",
    "CertificateUnit",
    "CertifyError",
    "ChatAnswer",
    "ChatModel",
    "ChatRequest",
    "Choice",
    "ClusterPool",
    "Column",
    "ConcurrentWriter",
    "ConfigError",
    "DistanceMap",
    "Domain",
    "Draft",
    "EncodedFrame",
    "Engine",
    "EngineSettings",
    "EnvConfig",
    "EnvProfile",
    "ExactSolver",
    "Exporter",
    "FailedEpisode",
    "Failure",
    "FileRecord",
    "Filter",
    "Frame",
    "GenerationError",
    "GenerationOptions",
    "Generator",
    "Guidance",
    "GuidanceFilter",
    "GuidanceRequest",
    "GuidanceWriter",
    "Hindsight",
    "HistoryEntry",
    "Importer",
    "LabelledEpisode",
    "LabelledShard",
    "LevelError",
    "ModelOptions",
    "Objection",
    "Objective",
    "Offer",
    "ParsedAction",
    "PivotEnv",
    "PivotError",
    "Place",
    "Player",
    "PlayerHabits",
    "PluginError",
    "Policy",
    "PolicyError",
    "PreparedRequest",
    "PromptMessages",
    "Proof",
    "Prover",
    "RecordedEpisode",
    "Reply",
    "RlConfig",
    "Sampling",
    "ServerGoneError",
    "Settings",
    "SimulatorError",
    "Solver",
    "SolverSettings",
    "Source",
    "Stat",
    "Statement",
    "Storage",
    "StudentPrompt",
    "TableSchema",
    "Task",
    "TaskRollouts",
    "TokenBatch",
    "Trained",
    "Turn",
    "UnreadableError",
    "Unsolved",
    "Url",
    "Verdict",
    "WorkerPool",
    "carry_out",
    "complete_episodes",
    "derive_seed",
    "digest",
    "statement",
    "uniforms",
]


def __getattr__(name: str) -> Any:
    """Import the contracts that bring whole rooms when they are first used."""
    from .core.lazy import imported  # noqa: PLC0415 - only needed here

    return imported(__name__, name)
