"""Ends of prompts and replies of twelve families of thinking models, from their public documentation."""

from dataclasses import dataclass

ACTION = "<action>up</action>"


@dataclass(frozen=True)
class Family:
    """A family of models."""

    prompt_end: str
    """Text that its template writes after the last message."""
    reply: str
    """Text that the model itself then writes, without the end mark."""
    supervised: str
    """Part of the reply ``<think>go</think><action>up</action>`` that a trainer lets it learn."""
    is_thinking: bool = True
    """Whether the reply has a thought."""


def opened(prompt_end: str) -> Family:
    """Return a family whose template opens the thought."""
    return Family(f"{prompt_end}<think>\n", f"go\n</think>\n\n{ACTION}", f"go</think>{ACTION}")


def marked(prompt_end: str, opening: str, closing: str) -> Family:
    """Return a family that opens the thought itself; a trainer gives it the tags of our prompt."""
    return Family(prompt_end, f"{opening}go{closing}{ACTION}", f"<think>go</think>{ACTION}")


FAMILIES = {
    "qwen3-vl-thinking": opened("<|im_start|>assistant\n"),
    "qwq": opened("<|im_start|>assistant\n"),
    "deepseek-r1": opened("<\uff5cAssistant\uff5c>"),
    "minimax-m2": opened("]~b]ai\n"),
    "glm-4.1v-thinking": opened("<|assistant|>\n"),
    "qwen3": marked("<|im_start|>assistant\n", "<think>\n", "\n</think>\n\n"),
    "qwen3 without thoughts": Family(
        "<|im_start|>assistant\n<think>\n\n</think>\n\n", ACTION, f"<think>go</think>{ACTION}", is_thinking=False
    ),
    "kimi-vl-thinking": marked("<|im_assistant|>assistant<|im_middle|>", "◁think▷", "◁/think▷"),
    "magistral": marked("[/INST]", "[THINK]", "[/THINK]"),
    "seed-oss": marked("<seed:bos>assistant\n", "<seed:think>", "</seed:think>"),
    "seed-oss, opened": Family(
        "<seed:bos>assistant\n<seed:think>", f"go</seed:think>{ACTION}", f"go</seed:think>{ACTION}"
    ),
    "gemma 4": marked("<|turn>model\n", "<|channel>thought\n", "<channel|>"),
    "command a reasoning": marked(
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"
    ),
    "gpt-oss": marked(
        "<|start|>assistant", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"
    ),
}
