"""A tiny Qwen3-VL that calls the tool ``act``: made from scratch and taught to reply with one of four calls.

Its chat template is TRL's for Qwen3-VL. Every line of the prompt and every call is one token, so that a conversation of
nine pictures is short.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from pivot.interop.trainers.trl import Environments
from pivot.models.extras import need
from pivot.tests.models.from_scratch import DEVIATION, bpe_tokenizer, make_vlm

torch: Any = need("torch", "train")
MOVES = ("up", "down", "left", "right")


def call_of(move: str) -> dict[str, Any]:
    """A tool call with a whole reply."""
    arguments = {"reply": f"<think>go {move}</think><action>{move}</action>"}
    return {"type": "function", "function": {"name": "act", "arguments": arguments}}


def text_of(move: str) -> str:
    """Return the call in the form of TRL's chat template."""
    function = call_of(move)["function"]
    return f'<tool_call>\n{{"name": "act", "arguments": {json.dumps(function["arguments"])}}}\n</tool_call>'


def conversation(environments: Environments, moves: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages of an episode with these moves."""
    environment = environments()
    messages: list[dict[str, Any]] = [{"role": "user", "content": environment.reset(task=0)}]
    for move in moves:
        if environment._play.is_over:  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
            break
        empty = [{"type": "text", "text": ""}]
        messages.append({"role": "assistant", "content": empty, "tool_calls": [call_of(move)]})
        content = environment.act(call_of(move)["function"]["arguments"]["reply"])
        messages.append({"role": "tool", "name": "act", "content": content})
    return messages


def make_tool_player(
    conversation: Callable[[Sequence[str]], list[dict[str, Any]]], tool: Callable[..., Any], updates: int = 60
) -> tuple[Any, Any]:
    """Return a model that calls the tool at every turn, and its processor.

    Args:
        conversation: makes the messages of an episode from its moves, pictures included.
        tool: the tool.
        updates: number of updates.
    """
    chat_template: str = need("trl.chat_template_utils", "train").qwen3_vl_chat_template
    schema = json.dumps(need("transformers.utils", "train").get_json_schema(tool))
    shown = [part["text"] for message in conversation(MOVES) for part in message["content"] if part["type"] == "text"]
    template = [line for line in chat_template.splitlines() if len(line) > 40]
    whole = [*map(text_of, MOVES), *(line for text in (*shown, schema, *template) for line in text.splitlines())]
    tokenizer = bpe_tokenizer([], 264, dict.fromkeys(line for line in whole if len(line) > 12))
    model, processor = make_vlm(
        tokenizer, family="qwen3_vl", patch=8, most_image_tokens=64, text={"head_dim": 32}, deviation=DEVIATION
    )
    processor.chat_template = chat_template
    rng, optimizer = random.Random(0), torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    calls = {tokenizer.convert_tokens_to_ids(text_of(move)) for move in MOVES}
    for _ in range(updates):
        messages = conversation([rng.choice(MOVES) for _ in range(4)])
        batch = processor.apply_chat_template(
            [messages], tools=[tool], tokenize=True, return_dict=True, return_tensors="pt"
        )
        tokens = batch["input_ids"][0]
        said = torch.tensor([token in calls for token in tokens.tolist()])
        said |= said.roll(1)  # the token that ends a turn
        scores = model(**batch).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(scores[said[1:]], tokens[1:][said[1:]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, processor
