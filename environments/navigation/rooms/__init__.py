"""Seeded furnished rooms, and the things in them."""
