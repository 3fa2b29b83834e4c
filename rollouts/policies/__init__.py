"""Policies that act through a chat model."""
