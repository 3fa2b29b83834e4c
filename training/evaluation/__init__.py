"""Evaluation of Analyzers and policies on held-out levels (``pivot evaluate``)."""
