"""Environments of PIVOT for the loops of other trainers: verifiers and TRL.

Each module imports its library; none of them is imported by the rest of PIVOT.
"""
