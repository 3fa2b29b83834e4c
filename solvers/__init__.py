"""Exact and heuristic feasibility solvers. They read state texts and never import an environment."""
