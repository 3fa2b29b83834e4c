"""The acting prompt of PrimitiveSkill: instruction, actions, the last two actions as text, picture, and coordinates."""

from ...core.data import load_data
from ..history_prompt import HistoryPrompt

PROMPT = HistoryPrompt("student.primitiveskill", "1", load_data(__file__, "prompt.yaml"))
