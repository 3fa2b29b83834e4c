"""A store to look at: a static site that opens from disk, and the same pages served while one looks."""
