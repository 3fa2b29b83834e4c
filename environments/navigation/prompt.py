"""The acting prompt of navigation: instruction, actions, the last two actions as text, and the current view."""

from ...core.data import load_data
from ..history_prompt import HistoryPrompt

PROMPT = HistoryPrompt("student.navigation", "1", load_data(__file__, "prompt.yaml"))
