"""Encode, decode and name pictures. A frame's id is a hash of what the model sees, not of the encoded bytes."""
