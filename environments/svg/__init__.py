"""SVG: draw a picture as a document, raster by raster (spec section 2)."""

from .environment import SvgConfig, SvgEnv

__all__ = ["SvgConfig", "SvgEnv"]
