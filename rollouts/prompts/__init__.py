"""Student prompts, one file per environment."""
