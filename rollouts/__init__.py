"""Policies, prompts, the reply grammar and the rollout loop."""
