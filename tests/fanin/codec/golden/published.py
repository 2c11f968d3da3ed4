"""Published implementations of MX as judges of ours: torchao's ``to_mx`` and gfloat's blocks."""

import warnings

import numpy as np

from fanin.codec.formats import Element

TORCHAO_ELEMENTS = [element for element in Element if element is not Element.INT8]


def torchao_compress(values, element, block):
    """Return scales and right-aligned codes, as ``mx.compress`` does; whole blocks."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.prototype.mx_formats.mx_tensor import to_mx
    scales, data = to_mx(torch.from_numpy(values), _torch_type(element), block)
    codes = data.view(torch.uint8).numpy().reshape(-1)
    if element is Element.E2M1:  # two in a byte
        codes = np.stack([codes & 15, codes >> 4], axis=1).reshape(-1)
    return scales.view(torch.uint8).numpy(), codes


def torchao_decompress(scales, codes, element, block):
    """Return the values of whole blocks."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchao.prototype.mx_formats.mx_tensor import to_dtype
    kind, data = _torch_type(element), torch.from_numpy(codes)
    if element is Element.E2M1:
        data = torch.from_numpy(codes[::2] | codes[1::2] << 4)
    elif isinstance(kind, torch.dtype):
        data = data.view(kind)
    scale = torch.from_numpy(scales).view(torch.float8_e8m0fnu)
    return to_dtype(data, scale, kind, block, torch.float32).numpy()


def _torch_type(element):
    import torch

    return {
        Element.E4M3: torch.float8_e4m3fn,
        Element.E5M2: torch.float8_e5m2,
        Element.E3M2: "fp6_e3m2",
        Element.E2M3: "fp6_e2m3",
        Element.E2M1: torch.float4_e2m1fn_x2,
    }[element]


def gfloat_compress(values, element):
    """Return scale and codes of one block of 32 values."""
    from gfloat import encode_block
    from gfloat.block import compute_scale_amax
    from gfloat.formats import all_block_formats

    (layout,) = (each for each in all_block_formats if each.name == f"mx{_FAMILIES[element]}{_suffix(element)}")
    exact = values.astype(np.float64)
    scale = compute_scale_amax(layout.etype.emax, exact)
    first, *codes = encode_block(layout, scale, exact / scale)
    return int(first), [int(code) for code in codes]


_FAMILIES = {
    Element.E4M3: "fp8",
    Element.E5M2: "fp8",
    Element.E3M2: "fp6",
    Element.E2M3: "fp6",
    Element.E2M1: "fp4",
    Element.INT8: "int8",
}


def _suffix(element):
    return "" if element is Element.INT8 else f"_{element}"
