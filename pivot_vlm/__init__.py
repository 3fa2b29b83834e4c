"""PIVOT's environments for verifiers, which imports tasksets by the name of a top-level package: `pivot-vlm`."""

from pivot.interop.trainers.verifiers import PivotHarness, PivotTaskset, PivotTasksetEnv

__all__ = ["PivotHarness", "PivotTaskset", "PivotTasksetEnv"]
