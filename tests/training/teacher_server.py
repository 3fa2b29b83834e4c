"""A chat server around a tiny real model that gives log-probabilities of prompts; abilities can be switched off."""

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from PIL import Image

torch: Any = pytest.importorskip("torch", reason="needs PyTorch; run: make test WHAT=train")

from pivot.core.messages import EncodedFrame  # noqa: E402 - after the skip
from pivot.models.base import ChatRequest, Sampling  # noqa: E402
from pivot.models.transformers.model import Engine  # noqa: E402
from pivot.training.analyzer import encoded_picture  # noqa: E402
from pivot.training.policy_rl.engines.servers import NAME as POLICY  # noqa: E402

NAME = "larger"


class _Answers:
    """Handler of requests, one at a time, because there is one model."""

    def __init__(self, model: Any, processor: Any, faults: set[str], pictures: int) -> None:
        self._model, self._processor, self.faults, self._pictures = model.eval(), processor, faults, pictures
        self._lock = threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.routes: dict[str, Callable[[Any], None]] = {}
        """Handlers of further routes by path; each gets the request's body."""

    def to(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and answer."""
        self.asked.append(body)
        pictures = [part for message in body["messages"] for part in message["content"] if _is_picture(part)]
        if len(pictures) > self._pictures:
            return 400, {"error": {"message": f"At most {self._pictures} image(s) may be provided in one prompt."}}
        if "busy" in self.faults:
            return 503, {"error": {"message": "busy"}}
        if body.get("logprobs"):
            with self._lock:
                return 200, self._generated(body)
        message = {"role": "assistant", "content": "Look before you push."}
        answer: dict[str, Any] = {"choices": [{"message": message, "finish_reason": "stop"}], "model": NAME}
        if "prompt_logprobs" in body and "no prompt_logprobs" not in self.faults:
            with self._lock:
                answer["prompt_logprobs"] = self._told(body, pictures)
        return 200, answer

    def _generated(self, body: dict[str, Any]) -> dict[str, Any]:
        """Answer as vLLM does when it is asked for token ids and log-probabilities."""
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

    def _told(self, body: dict[str, Any], pictures: list[Any]) -> list[dict[str, Any] | None]:
        messages = [
            {**message, "content": [{"type": "image"} if _is_picture(part) else part for part in message["content"]]}
            if isinstance(message["content"], list)
            else message
            for message in body["messages"]
        ]
        images = [
            Image.open(io.BytesIO(base64.b64decode(part["image_url"]["url"].partition(",")[2]))).convert("RGB")
            for part in pictures
        ]
        text = self._processor.apply_chat_template(messages, tokenize=False, add_generation_prompt=False)
        inputs = self._processor(text=[text], images=images or None, return_tensors="pt")
        names = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
        banned = sorted({each for name in names if isinstance(each := getattr(self._processor, name, None), int)})
        with torch.no_grad():
            scores = self._model(**inputs).logits[0].index_fill(1, torch.tensor(banned), float("-inf"))
        chances, ids = scores.log_softmax(-1), inputs["input_ids"][0].tolist()
        shift = 1 if "other tokens" in self.faults else 0
        return [
            None if place == 0 else {str(token + shift): {"logprob": max(-1e4, chances[place - 1, token].item())}}
            for place, token in enumerate(ids)
        ]


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "image_url"


@contextmanager
def teacher_server(model: Any, processor: Any, *faults: str, pictures: int = 8) -> Iterator[tuple[str, _Answers]]:
    """Serve a model on this machine; ``faults`` says what the server lacks."""
    answers = _Answers(model, processor, set(faults), pictures)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"data": [{"id": NAME}, {"id": POLICY}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null")
            if self.path in answers.routes:
                answers.routes[self.path](body)
                self._send(200, "Success: done.")
            else:
                self._send(*answers.to(body))

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
