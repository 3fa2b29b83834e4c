"""One TLS context for all clients of these tests: reading the certificates takes most of the time of a client."""

import functools
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_tls_context() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        with suppress(ImportError, AttributeError):  # another version of the library
            transport = import_module("httpcore2")
            patch.setattr(transport, "default_ssl_context", functools.cache(transport.default_ssl_context))
        yield
