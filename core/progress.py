"""Progress of long work: who gets it."""


class Reporter:
    """Gets the progress of the work; this one shows nothing, and a subclass shows what it overrides."""

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
