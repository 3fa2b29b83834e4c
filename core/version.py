"""The version of this release; the package's metadata is read from here."""

__version__ = "0.2.0"
