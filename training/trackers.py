"""Experiment trackers: their check for both stages, and those of Stage II, which the accelerate library writes to.

Stage I has a trainer of the transformers library, which has its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import TrainingError
from ..models.extras import need
from .config import EXTRA

torch: Any = need("torch", EXTRA)


def check_trackers(names: Sequence[str]) -> None:
    """Check before any work that the experiment trackers are installed.

    Raises:
        TrainingError: one is not.
    """
    installed = need("transformers.integrations", EXTRA).get_available_reporting_integrations()
    missing = [name for name in names if name not in (*installed, "all", "none")]
    if missing:
        raise TrainingError(
            f"--report-to: tracker {missing[0]!r} is not installed, expected one of: "
            f"{', '.join([*sorted(installed), 'all', 'none'])}; install it with pip, or remove --report-to"
        )


def flat_metrics(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics by flat names, such as ``validation/success/value``; nulls are left out.

    The number of the update is not among them.
    """

    def numbers(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, float]]:
        for name, value in values.items():
            if isinstance(value, Mapping):
                yield from numbers(value, f"{above}{name}/")
            elif isinstance(value, int | float) and f"{above}{name}" != "step":
                yield f"{above}{name}", value

    return dict(numbers(line))


class Trackers:
    """The trackers of a run of Stage II; the main process logs for all."""

    def __init__(self, out: Path, report_to: Sequence[str]) -> None:
        """Start the trackers in ``report_to``, which write below the folder of the run."""
        names = [name for name in report_to if name != "none"]
        self._accelerator: Any = None
        if names:
            accelerate: Any = need("accelerate", EXTRA)
            self._accelerator = accelerate.Accelerator(
                cpu=not torch.cuda.is_available(), log_with=names, project_dir=str(out)
            )
            self._accelerator.init_trackers(out.name)

    def log(self, line: Mapping[str, Any]) -> None:
        """Log a line of metrics under the number of its update."""
        if self._accelerator is not None:
            self._accelerator.log(flat_metrics(line), step=line["step"])

    def close(self) -> None:
        """Flush and end the trackers."""
        if self._accelerator is not None:
            self._accelerator.end_training()
