"""The second, independent opinion on every label: what ``pivot verify`` asks."""
