"""DuckDB views over a store, and their definitions."""
