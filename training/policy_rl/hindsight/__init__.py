"""Hindsight: arms, the analysis of failures, and the Teacher prompts made from it."""
