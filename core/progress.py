"""Reporters of the progress of long work, and the one that is active."""


class Reporter:
    """Receives the progress of the work; this base class shows nothing, subclasses override what they show."""

    def start(self, stage: str, total: int) -> None:
        """Begin a stage of ``total`` units, see :func:`.unit_of`."""

    def advance(self, stage: str, amount: int) -> None:
        """Add ``amount`` finished units."""

    def finish(self, stage: str) -> None:
        """End the stage."""

    def stored(self, stage: str, shard: str, seconds: float, size: int, *, reused: bool) -> None:
        """Report a stored stage of a shard: ``size`` bytes after ``seconds``; ``reused`` from an earlier run."""

    def note(self, line: str) -> None:
        """Show a single message, such as that the flow engine starts."""
