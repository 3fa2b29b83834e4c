"""Drawing untrusted documents in a process that has given its rights away (spec section 7)."""
