"""What stores tell: statistics, comparisons, the rollback probe and plots."""
