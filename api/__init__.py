"""The functions of ``import pivot``: everything that the command line does; the command line calls them."""
