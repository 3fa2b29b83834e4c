"""Ports for processes that train together."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens."""
    with ExitStack() as open_together:
        probes = [open_together.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
