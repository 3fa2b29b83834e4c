"""Generator of icon-like target pictures."""
