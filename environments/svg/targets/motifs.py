"""Motifs of targets; each is a function from a pen to elements within the view box of 96 x 96 units.

A motif draws from back to front and leaves a margin of about ten units. To add one, write a function in one of the
modules below and add its name to that module's list; since seeds then give different documents, increase the
generator's version.
"""

from collections.abc import Callable

from . import nature, signs, things
from .pen import Pen

Motif = Callable[[Pen], list[str]]

MOTIFS: dict[str, Motif] = {motif.__name__: motif for motif in (*nature.MOTIFS, *signs.MOTIFS, *things.MOTIFS)}
