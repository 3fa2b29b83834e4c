"""Child processes under guard: what simulators, rasterisers and servers of ours have in common."""

import os

from .errors import ConfigError


def seconds(name: str, default: float) -> float:
    """Return a deadline from its environment variable.

    Raises:
        ConfigError: it is not a positive number.
    """
    text = os.environ.get(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ConfigError(f"{name} is {text!r}; expected a positive number of seconds")
    return value
