"""Counts of the reasons for which labels are rejected."""

from collections import Counter
from collections.abc import Iterable

from pivot.labeling.base import Label


def count_reject_reasons(labels: Iterable[Label]) -> Counter[str]:
    """Count the labels per reject reason; a label with two reasons counts under both."""
    return Counter(name for label in labels for name in {reason.name for reason in label.reject_reasons})
