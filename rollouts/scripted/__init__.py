"""The embedded stand-in for a model: seeded, often wrong, in every way that matters downstream.

It exists so that everything downstream runs on episodes shaped like a weak model's: success is as frequent as the
paper's untrained model's, rollouts of one level resemble each other, and every failure mode and every kind of unusable
reply occurs. It plays each environment through a :class:`Player`, one file each, found through the entry points
``pivot.players``. It reads the live state, which no real policy may; its rows name it as a stand-in.
"""

from .grid import GridPlayer
from .kinds import MixedPolicy
from .player import Player
from .policy import VERSION, ScriptedPolicy

__all__ = ["VERSION", "GridPlayer", "MixedPolicy", "Player", "ScriptedPolicy"]
