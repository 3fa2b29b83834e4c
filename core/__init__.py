"""What every room uses: errors, identities, pictures, plugins, processes, records, and the storage of files."""
