"""Real models as policies and teachers: over an OpenAI-compatible server, or in this process."""
