"""Generator of furnished rooms and the objects in them."""
