"""``pivot`` and ``python -m pivot``. The command line is imported only when it runs.

Processes that are spawned (our workers, a simulator, vLLM's) import the main module again; they should get nothing by
it, and vLLM's CPU workers even fail when numba is already there.
"""

import sys

from . import __version__


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:  # without the libraries of the commands, whose import takes seconds
        sys.stdout.write(f"pivot {__version__}\n")
        return
    from .cli import main as run  # noqa: PLC0415 - see above

    run()


if __name__ == "__main__":
    main()
