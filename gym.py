"""Exact labels for any gymnasium environment: :class:`Certified` adds them to ``info`` while a rollout runs."""

from .solvers.closure.certified import Certified

__all__ = ["Certified"]
