"""Labels of navigation episodes by the distance that is left."""

from .solver import NavigationSolver

__all__ = ["NavigationSolver"]
