"""Gymnasium environments with text levels and exact restore."""
