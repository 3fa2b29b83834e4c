"""PIVOT's environments for verifiers, which imports tasksets by the name of a top-level package: `pivot-vlm`."""

from pivot.integrations.verifiers import PivotEnv, PivotHarness, PivotTaskset

__all__ = ["PivotEnv", "PivotHarness", "PivotTaskset"]
