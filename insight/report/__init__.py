"""A store as a static site that opens from disk, or as the same pages from a local server."""
