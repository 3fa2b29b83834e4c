"""Exact and heuristic feasibility solvers, one file each. They know plain state texts only."""
