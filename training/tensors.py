"""Types of tensors. PyTorch is imported for the type checker alone, so that modules load without it.

A name says the shape; the element type is float32 unless it says otherwise.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch  # pyright: ignore[reportMissingImports]

    Tensor: TypeAlias = torch.Tensor
    Module: TypeAlias = torch.nn.Module
    Optimizer: TypeAlias = torch.optim.Optimizer
else:
    Tensor = Module = Optimizer = Any

Scalar: TypeAlias = Tensor
"""Shape ()."""
TokenValues: TypeAlias = Tensor
"""Shape (tokens,): one number per reply token of some turns, turn after turn."""
TokenMask: TypeAlias = Tensor
"""Shape (tokens,), bool."""
CandidateIds: TypeAlias = Tensor
"""Shape (tokens, k), int64: k tokens of the vocabulary for each reply token."""
CandidateValues: TypeAlias = Tensor
"""Shape (tokens, k): one number per candidate."""
Patches: TypeAlias = Tensor
"""Shape (patches, numbers): pictures as the vision encoder reads them."""
Grids: TypeAlias = Tensor
"""Shape (pictures, 3), int64: patches over time, height and width of each picture."""
