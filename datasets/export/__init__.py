"""Export formats of a store: :mod:`.base` has the contract, every other module one format."""
