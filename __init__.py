r"""PIVOT: find the step where a failed vision-language agent lost the task, certify it, and train on it.

The main commands are functions here, which the command line calls::

    import pivot

    level = "######\n#@ $.#\n#    #\n######"
    verdict = pivot.certify("sokoban", level, ["down", "right", "right", "up"], horizon=4)  # one episode, in memory

    config = {"environments": {"sokoban": {"tasks": 2}}, "rollouts": 4}
    result = pivot.build(config, "runs/demo")  # rollouts, labels and dataset on disk
    report = pivot.verify("runs/demo")  # re-derives every label
    frames = pivot.load_store("runs/demo")  # lazy polars frames over a store
    modes = pivot.query("runs/demo", "from modes")  # SQL over a store

``pivot.relabel``, ``probe``, ``merge``, ``prune``, ``export``, ``stats``, ``report``, ``train_sft``, ``train_rl``,
``make_model``, ``evaluate_analyzer``, ``evaluate_baselines`` and ``evaluate_policy`` are named like their
commands. ``pivot.import_rollouts`` is ``pivot import``. Without a command:
``pivot.certify_batch`` labels many episodes in memory, ``pivot.pairs``, ``pivot.corrections`` and
``pivot.analyzer_rows`` make rows for a trainer of them, ``pivot.credit`` returns the needed turns, slack and score of
each turn, ``pivot.explore`` searches a level of any gymnasium environment, ``pivot.Recorder`` writes the episodes of
your own trainer for ``pivot.import_rollouts``, and ``pivot.allow_code`` lets environments of other packages be made.

Names are imported when they are first used, so ``import pivot`` takes milliseconds.
"""

import sys
from typing import TYPE_CHECKING, Any

from .core.errors import PivotError
from .core.version import __version__

if sys.platform == "win32":
    raise ImportError("PIVOT runs on Linux; on Windows it needs WSL 2, because it locks files with fcntl")

if TYPE_CHECKING:
    from .core.admission import allow_code
    from .core.progress import Reporter
    from .datasets.export.memory import analyzer_rows, corrections, pairs
    from .datasets.sql.views import query_frame as query
    from .datasets.store.config import RunConfig
    from .datasets.store.nights import load_store
    from .datasets.store.store import StoreFrames
    from .datasets.verify.report import Report as VerifyReport
    from .flows.build import build
    from .flows.export import export
    from .flows.merge import merge
    from .flows.pipeline import BuildResult
    from .flows.probe import probe
    from .flows.prune import prune
    from .flows.relabel import LabelChanges, relabel
    from .flows.training import evaluate_policy, make_model, train_rl, train_sft
    from .flows.verify import verify
    from .insight.probe.records import ProbeSettings
    from .insight.report.site import report
    from .insight.stats import stats
    from .interop.recorder import Recorder
    from .interop.run import ImportResult, import_rollouts
    from .solvers.api import certify, certify_batch
    from .solvers.base import Certificate, Unsolved, Verdict
    from .solvers.closure import Graph, explore
    from .solvers.closure.certified import Certified
    from .solvers.credit import TurnCredit, credit
    from .training.analyzer_sft.config import SftConfig
    from .training.evaluation.config import AnalyzerEvaluationConfig, BaselinesConfig, PolicyEvaluationConfig
    from .training.evaluation.run import EvaluationReport, evaluate_analyzer, evaluate_baselines
    from .training.policy_rl.config import RlConfig

__all__ = [
    "AnalyzerEvaluationConfig",
    "BaselinesConfig",
    "BuildResult",
    "Certificate",
    "Certified",
    "EvaluationReport",
    "Graph",
    "ImportResult",
    "LabelChanges",
    "PivotError",
    "PolicyEvaluationConfig",
    "ProbeSettings",
    "Recorder",
    "Reporter",
    "RlConfig",
    "RunConfig",
    "SftConfig",
    "StoreFrames",
    "TurnCredit",
    "Unsolved",
    "Verdict",
    "VerifyReport",
    "__version__",
    "allow_code",
    "analyzer_rows",
    "build",
    "certify",
    "certify_batch",
    "corrections",
    "credit",
    "evaluate_analyzer",
    "evaluate_baselines",
    "evaluate_policy",
    "explore",
    "export",
    "import_rollouts",
    "load_store",
    "make_model",
    "merge",
    "pairs",
    "probe",
    "prune",
    "query",
    "relabel",
    "report",
    "stats",
    "train_rl",
    "train_sft",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: ``import pivot`` stays cheap."""
    from .core.lazy import imported  # noqa: PLC0415 - only needed here

    value = globals()[name] = imported(__name__, name)
    return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*globals(), *__all__})
