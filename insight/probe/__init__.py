"""The rollback probe: what a policy reaches from the step where it lost, and from those beside it (spec section 6)."""
