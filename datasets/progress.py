"""How long work reports how far it has come."""

from typing import Protocol


class Reporter(Protocol):
    """Is told how far the work has come."""

    def start(self, stage: str, total: int) -> None:
        """A stage of ``total`` episodes begins."""
        ...

    def advance(self, stage: str, amount: int) -> None:
        """``amount`` episodes more are done."""
        ...

    def finish(self, stage: str) -> None:
        """The stage is over."""
        ...


class Silent:
    """Reports nothing."""

    def start(self, stage: str, total: int) -> None:
        """Say nothing."""

    def advance(self, stage: str, amount: int) -> None:
        """Say nothing."""

    def finish(self, stage: str) -> None:
        """Say nothing."""
