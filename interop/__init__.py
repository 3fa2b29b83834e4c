"""Imports: rollouts of other programs, read into a store, and a recorder that writes them."""
