"""``pivot verify``: a store proved again from its rows."""
