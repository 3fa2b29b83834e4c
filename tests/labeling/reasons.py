"""Counts of the reasons against labels."""

from collections import Counter
from collections.abc import Iterable

from pivot.labeling.base import Label


def count_reject_reasons(labels: Iterable[Label]) -> Counter[str]:
    """Count how many labels each reason name stands against; a label with two different ones counts under both."""
    return Counter(name for label in labels for name in {reason.name for reason in label.reject_reasons})
