"""Callbacks and experiment trackers of a run, called as the trainers of the transformers library call them.

Stage I has such a trainer. Stage II has a loop of its own, which calls the same callbacks at the same events, so that
the library's integrations of ``wandb``, ``trackio`` and ``tensorboard`` log both stages.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import TrainingError
from ..models.extras import need
from .config import EXTRA
from .ranks import Ranks

torch: Any = need("torch", EXTRA)
transformers: Any = need("transformers", EXTRA)


def check_trackers(names: Sequence[str]) -> None:
    """Check before any work that the experiment trackers are installed.

    Raises:
        TrainingError: one is not.
    """
    integrations: Any = need("transformers.integrations", EXTRA)
    installed = integrations.get_available_reporting_integrations()
    missing = [name for name in names if name not in (*installed, "all", "none")]
    if missing:
        raise TrainingError(
            f"--report-to: tracker {missing[0]!r} is not installed, expected one of: "
            f"{', '.join([*sorted(installed), 'all', 'none'])}; install it with pip, or remove --report-to"
        )


def flat_metrics(line: Mapping[str, Any], above: str = "") -> dict[str, float]:
    """Return the numbers of a line of metrics by flat names, such as ``validation/success/value``; nulls are left out.

    The number of the update is not among them.
    """

    def numbers(values: Mapping[str, Any], above: str) -> Iterator[tuple[str, float]]:
        for name, value in values.items():
            if isinstance(value, Mapping):
                yield from numbers(value, f"{above}{name}/")
            elif isinstance(value, int | float) and f"{above}{name}" != "step":
                yield f"{above}{name}", value

    return dict(numbers(line, above))


class Observers:
    """The callbacks of a run of Stage II, with the state that they get."""

    def __init__(
        self,
        out: Path,
        updates: int,
        ranks: Ranks,
        *,
        model: Any = None,
        processor: Any = None,
        report_to: Sequence[str] = (),
        callbacks: Sequence[Any] = (),
    ) -> None:
        """Prepare the trackers in ``report_to``, and further callbacks.

        Args:
            out: folder of the run, which ``args.output_dir`` names; trackers write below it.
            updates: ``state.max_steps``.
            ranks: the processes that train together.
            model: trained model.
            processor: its processor.
            report_to: names of trackers.
            callbacks: instances or classes of ``transformers.TrainerCallback``.
        """
        self._ranks = ranks
        names = [] if "none" in report_to else list(report_to)
        self._args: Any = None
        self._handler: Any = None
        if not (names or callbacks):
            return
        self._args = transformers.TrainingArguments(
            output_dir=str(out),
            run_name=out.name,
            report_to=names or "none",
            max_steps=updates,
            save_strategy="no",  # the run's own settings decide
            use_cpu=not torch.cuda.is_available(),
        )
        integrations: Any = need("transformers.integrations", EXTRA)
        trackers = integrations.get_reporting_integration_callbacks(self._args.report_to)
        handler: Any = need("transformers.trainer_callback", EXTRA)
        usual = [transformers.DefaultFlowCallback, *trackers, *callbacks]
        self._handler = handler.CallbackHandler(usual, model, processor, None, None)
        self._state: Any = handler.TrainerState(
            max_steps=updates,
            is_world_process_zero=ranks.is_main,
            is_local_process_zero=ranks.is_main,
        )
        self._control: Any = handler.TrainerControl()

    def call(self, event: str, *details: Any, updates: int | None = None) -> None:
        """Call the callbacks at an event, such as ``on_step_end``, after a number of updates if it changed."""
        if self._handler is not None:
            self._state.global_step = self._state.global_step if updates is None else updates
            getattr(self._handler, event)(self._args, self._state, self._control, *details)

    def log(self, line: Mapping[str, Any]) -> None:
        """Call ``on_log``, and ``on_evaluate`` if the line holds a validation; the state keeps the history."""
        if self._handler is None:
            return
        metrics = flat_metrics(line)
        self._state.log_history.append(metrics | {"step": self._state.global_step})
        self.call("on_log", metrics)
        if "validation" in line:
            self.call("on_evaluate", flat_metrics(line["validation"], "eval_"))

    def wants(self, what: str) -> bool:
        """Whether a callback of the main process set a field of its control, such as ``should_save``; it is reset."""
        if self._handler is None:
            return False
        value = bool(getattr(self._control, what))
        if what != "should_training_stop":
            setattr(self._control, what, False)
        return self._ranks.join({self._ranks.rank: value})[0]
