"""Solver of navigation: labels from the distance to the target."""

from .solver import NavigationSolver

__all__ = ["NavigationSolver"]
