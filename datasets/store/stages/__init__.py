"""Stages of a shard: :mod:`.base` runs them, the other modules define rollout, label and export."""
