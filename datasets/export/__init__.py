"""Formats that a store is exported in: :mod:`.base` has the contract, every other module one format."""
