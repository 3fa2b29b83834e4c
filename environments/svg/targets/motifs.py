"""The things that targets show, each a function from a pen to elements within the view box of 96 x 96 units.

A motif draws from back to front and leaves about ten units of margin. A new one is a function in one of the modules
below, and its name in that module's list; it changes what seeds draw, so the generator's version has to be raised.
"""

from collections.abc import Callable

from . import nature, signs, things
from .pen import Pen

Motif = Callable[[Pen], list[str]]

MOTIFS: dict[str, Motif] = {motif.__name__: motif for motif in (*nature.MOTIFS, *signs.MOTIFS, *things.MOTIFS)}
