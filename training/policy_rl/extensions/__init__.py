"""Contracts of what others add to Stage II: distillation losses and estimators of advantages, with PIVOT's own."""
