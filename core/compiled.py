"""Keep numba's cache valid across files.

Numba recompiles a cached function when its own file changes, but not when a compiled function or a constant that it
took from another file does. Each file of compiled code therefore names what it uses, and forgets what is older.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numba


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile on first use, without the GIL; keep the machine code on disk where some cache folder can be written.

    ``options`` are further ones of ``numba.njit``.
    """
    compiler = partial(numba.njit, nogil=True, error_model="numpy", **options)
    try:
        return compiler(cache=True)(function)
    except RuntimeError:  # no writable cache folder
        return compiler()(function)


def forget_stale(file: str, *used: ModuleType) -> None:
    """Remove the cache indexes of ``file`` that are older than one of the modules it uses.

    A cache that cannot be changed is left alone: it belongs to an installation whose files change together.
    """
    newest = max(Path(str(module.__file__)).stat().st_mtime for module in used)
    for index in (Path(file).parent / "__pycache__").glob(f"{Path(file).stem}.*.nbi"):
        with suppress(OSError):
            if index.stat().st_mtime < newest:
                index.unlink()
