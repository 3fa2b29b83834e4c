"""SVG: reproduce a picture as an SVG document (spec section 2)."""

from .environment import SvgConfig, SvgEnv

__all__ = ["SvgConfig", "SvgEnv"]
