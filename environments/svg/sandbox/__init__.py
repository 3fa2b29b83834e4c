"""Renderer of untrusted documents in processes without privileges."""
