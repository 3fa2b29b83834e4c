"""Statistics, comparisons, the rollback probe, plots and reports of stores."""
