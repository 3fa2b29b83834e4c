"""Chat models on servers and in this process, independent of policies and guidance."""
