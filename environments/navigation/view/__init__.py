"""Renderer of the agent's view: a compiled ray caster over the solids of a room."""
