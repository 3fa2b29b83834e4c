"""Renderer of untrusted documents in processes without privileges (spec section 7)."""
