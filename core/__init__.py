"""Shared by all rooms: errors, identities, pictures, plugins, processes, records, and the storage of files."""
