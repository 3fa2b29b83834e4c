"""Stages of a shard: :mod:`.base` says how one runs, the other modules what rollout, label and export make."""
