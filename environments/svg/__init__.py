"""SVG: reproduce a picture as an SVG document."""

from .environment import SvgConfig, SvgEnv

__all__ = ["SvgConfig", "SvgEnv"]
