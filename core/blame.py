"""The plugin to blame for an error: that of the innermost frame that belongs to a plugin or to PIVOT."""

import os
import re
import sys
import traceback
from importlib.metadata import EntryPoint
from pathlib import Path

from . import plugins


def blamed(error: BaseException) -> str | None:
    """Return one line about an error inside a third party's plugin; None for an error of our own.

    The innermost frame that belongs to a plugin or to PIVOT decides. Frames of other processes are read from the text
    that their pool sent along.
    """
    ours = f"{Path(__file__).parents[1]}{os.sep}"
    text = "".join(traceback.format_exception(error))
    for block in text.split("Traceback (most recent call last)")[1:]:
        frames = [(path, int(line)) for path, line in re.findall(r'^ *File "(.+?)", line (\d+)', block, re.MULTILINE)]
        while frames:
            path, line = frames[-1]
            if points := _points_of(path):
                what = " ".join(f"{type(error).__name__}: {error}".split())
                return f"{_owner(points)} failed with {what} at {path}:{line}; fix or uninstall that package"
            if path.startswith(ours) and "site-packages" not in path.removeprefix(ours):
                break
            frames.pop()
    return None


def _points_of(path: str) -> list[EntryPoint]:
    """List the entry points of the third party's package that a source file belongs to."""
    points: list[EntryPoint] = []
    for group in plugins.GROUPS:
        for point in plugins.registered(group):
            module = sys.modules.get(point.module.partition(".")[0])
            if module is None or module.__name__ == __name__.partition(".")[0]:
                continue
            folders = [f"{folder}{os.sep}" for folder in getattr(module, "__path__", ())]
            if path == module.__file__ or path.startswith(tuple(folders)):
                points.append(point)
    return points


def _owner(points: list[EntryPoint]) -> str:
    """Return the entry point, or the package if it has several."""
    if len(points) == 1:
        return plugins.described(points[0])
    package = points[0].dist.name if points[0].dist else points[0].module.partition(".")[0]
    return f"package {package!r} ({', '.join(f'{plugins.member_of(point)} {point.name!r}' for point in points)})"
