"""Lets PyPI's torchvision, which is linked against CUDA, be imported beside a CPU build of PyTorch.

vLLM's CPU build imports torchvision, whose import registers shape functions for the operators ``nms`` and ``qnms`` of a
library that cannot be loaded here. Nothing calls the two: it is enough that they are declared, just before torchvision
is imported. ``make test WHAT=serving`` copies this file into the environment of the server and loads it by a ``.pth``
file.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[Any] = []
"""A library's declarations end with the object that made them."""


class DeclareOperators(importlib.abc.MetaPathFinder):
    """Import hook that finds no module; it declares the operators before torchvision is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Leave the search to the finders after this one."""
        del path, target
        # While torch is imported, a caller may only check whether torchvision exists.
        if fullname == "torchvision" and not _declared and "torch.library" in sys.modules:
            library = sys.modules["torch"].library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                library.define(name + SIGNATURE)
            _declared.append(library)
        return None


sys.meta_path.insert(0, DeclareOperators())
