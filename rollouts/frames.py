"""The distinct frames of one task: each is hashed and encoded once, even if all rollouts show it.

Episodes start from one level and revisit the same few states; only about one frame in eight is new. If an environment
can name its picture (``frame_key``) without rendering it (``draw_frames``), a frame that exists is not rendered again.
"""

from collections.abc import Hashable

import numpy as np

from ..core.images import frame_id
from ..core.messages import EncodedFrame
from ..environments.base import Frame, PivotEnv


class FrameBook:
    """Frames of one task by id, in the order of their first appearance."""

    def __init__(self) -> None:
        """Start empty."""
        self.frames: dict[str, EncodedFrame] = {}
        self._ids: dict[Hashable, str] = {}

    def id_of(self, env: PivotEnv, frame: Frame) -> str:
        """Return the id of the frame that ``env`` shows now, and store the frame if it is new.

        Raises:
            ImageError: the environment returned something other than an RGB frame.
        """
        key = env.frame_key()
        stored = None if key is None else self._ids.get(key)
        if stored is not None:
            return stored
        if frame.size == 0:  # NO_FRAME: the environment did not render it
            drawn = env.render()
            frame = drawn if isinstance(drawn, np.ndarray) else frame
        name = self.add(env, frame)
        if key is not None:
            self._ids[key] = name
        return name

    def add(self, env: PivotEnv, frame: Frame) -> str:
        """Store a frame if it is new, and return its id; the errors are those of :meth:`id_of`."""
        name = frame_id(frame)
        if name not in self.frames:
            height, width = frame.shape[:2]
            image_format, image = env.encode_frame(frame)
            self.frames.setdefault(name, EncodedFrame(name, width, height, image_format, image))
        return name
