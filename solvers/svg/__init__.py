"""SVG: the solver, and the prover that judges its labels."""
