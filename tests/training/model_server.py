"""A chat server around a tiny real model that answers with token ids and log-probabilities, as vLLM does."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.core.messages import EncodedFrame  # noqa: E402 - after the skip
from pivot.models.base import ChatRequest, Sampling  # noqa: E402
from pivot.models.transformers.model import Engine  # noqa: E402
from pivot.training.analyzer import encoded_picture  # noqa: E402
from pivot.training.policy_rl.engines.vllm import NAME  # noqa: E402


class _Answers:
    """Handler of requests, one at a time, because there is one model."""

    def __init__(self, model: Any, processor: Any) -> None:
        self._model, self._processor = model.eval(), processor
        self._lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.routes: dict[str, Callable[[Any], None]] = {}
        """Handlers of further routes by path; each gets the request's body."""

    def to(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer in vLLM's form when token ids are requested."""
        self.asked.append(body)
        frames: dict[str, EncodedFrame] = {}
        messages = []
        for message in body["messages"]:
            content = []
            for part in message["content"]:
                if _is_picture(part):
                    frame = encoded_picture(base64.b64decode(part["image_url"]["url"].partition(",")[2]))
                    frames[frame.frame_id] = frame
                    content.append({"type": "image", "frame_id": frame.frame_id})
                else:
                    content.append(part)
            messages.append({**message, "content": content})
        banned = [int(token) for token, bias in body.get("logit_bias", {}).items() if bias == -100]
        engine = Engine(self._model, self._processor, banned)
        sampling = Sampling(body["temperature"], max_tokens=body["max_tokens"])
        request = ChatRequest("", "", 0, "student", messages, frames, "", sampling, body["seed"], wants_tokens=True)
        with self._lock:
            (answer,) = engine.answer([request])
            self._model.generation_config = engine.own_defaults
        if isinstance(answer, Exception) or answer.tokens is None or answer.logprobs is None:
            raise TypeError(answer)
        content = [
            {"token": text, "logprob": value} for text, value in zip(answer.tokens, answer.logprobs, strict=True)
        ]
        choice = {
            "message": {"role": "assistant", "content": answer.text},
            "finish_reason": answer.finish_reason,
            "token_ids": list(answer.token_ids or ()),
            "logprobs": {"content": content},
        }
        return {"choices": [choice], "model": body["model"]}


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"


@contextmanager
def model_server(model: Any, processor: Any) -> Iterator[tuple[str, _Answers]]:
    """Serve a model on this machine."""
    answers = _Answers(model, processor)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": NAME}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
            if self.path in answers.routes:
                answers.routes[self.path](body)
                self._send(200, "Success: done.")
            else:
                self._send(200, answers.to(body))

        def _send(self, status: int, answer: dict[str, Any] | str) -> None:
            data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", answers
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
