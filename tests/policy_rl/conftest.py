"""The player of the tests of training, and their settings."""

from pivot.tests.training.conftest import no_curves, one_thread, player  # noqa: F401 - fixtures
