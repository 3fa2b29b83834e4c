"""Chat models, wherever they run; nothing of policies or guidance is in here."""
