"""Levels in texts: the boards that VAGEN's Sokoban and FrozenLake show in place of a picture.

Read in mll-lab-nu/VAGEN: ``vagen/envs/sokoban/sokoban_env.py`` and ``vagen/envs/frozenlake/frozenlake_env.py``
(``GRID_LOOKUP``: three characters a cell, one line a row). The solvers read the symbols.
"""

import re

from .. import plugins
from ..errors import PluginError
from ..solvers.base import Solver

_BOARD = re.compile(r"(?:^ ?[#_O√XPSG](?:  [#_O√XPSG])+ ?$\n?){2,}", re.MULTILINE)
"""Rows of cells; the blank at either end of a row is missing where a template or a trainer trimmed the text."""


def board_in(env: str, text: str) -> str | None:
    """Return the level of the first board in a text that is one of an environment, as its state text; else None."""
    try:
        solver: type[Solver] = plugins.load("solvers", env)
    except PluginError:
        return None
    for match in _BOARD.finditer(text):
        rows = match[0].strip("\n")
        level = solver.read_level(rows)
        if level != rows:
            return level
    return None
