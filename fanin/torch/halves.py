"""bfloat16 and float16 tensors, as codes of 16 bits that NumPy holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from fanin.codec.facts import Bf16, Fp16

UInt16 = npt.NDArray[np.uint16]
HalfFormat = Bf16 | Fp16

#: Format of each type of 16 bits; values are rounded to nearest, ties to even.
FORMATS: dict[torch.dtype, HalfFormat] = {torch.bfloat16: Bf16(), torch.float16: Fp16()}


def common_format(tensors: Sequence[torch.Tensor]) -> HalfFormat | None:
    """Return the format of the tensors' values; None unless they have one type, of 16 bits."""
    types = {tensor.dtype for tensor in tensors}
    return FORMATS.get(types.pop()) if len(types) == 1 else None


def codes_of(tensor: torch.Tensor) -> UInt16:
    """Return the codes of a tensor's values, flat; a view if it is contiguous."""
    return codes_view(tensor.contiguous()).reshape(-1)


def codes_view(tensor: torch.Tensor) -> UInt16:
    """Return a view of the codes in a tensor's memory, in its shape; autograd does not see writes to it."""
    view: UInt16 = tensor.detach().view(torch.uint16).numpy()
    return view
