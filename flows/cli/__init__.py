"""The `pivot` command line."""
