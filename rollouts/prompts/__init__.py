"""Student prompts, one file an environment."""
