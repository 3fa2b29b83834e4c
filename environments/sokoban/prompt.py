"""The acting prompt of Sokoban. Its legend comes from the renderer, so that text and picture always agree."""

from ...core.data import load_data
from ..prompts import GridPrompt
from .sprites import LEGEND

PROMPT = GridPrompt("student.sokoban", "1", LEGEND, load_data(__file__, "prompt.yaml"))
