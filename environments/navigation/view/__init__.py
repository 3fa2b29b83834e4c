"""What the agent sees: a compiled ray caster over the solids of a room."""
