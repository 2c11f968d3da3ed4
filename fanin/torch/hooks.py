"""PyTorch: what training with the ring NIC and a codec would do to a model, before the NIC is built.

``inceptionn``, ``bfp`` and ``ring`` make communication hooks for DistributedDataParallel::

    model.register_comm_hook(None, inceptionn(bound=10))

A hook gathers every rank's gradients with ``all_gather`` and adds them up on each as the NICs of a ring of
those ranks would, bit for bit (``fanin.golden.ring.all_reduce``). The arithmetic is the NIC's; the traffic
and the time are all_gather's. A bucket is what a descriptor (address, count) of the NIC names.
"""

# No ``from __future__ import annotations``: DDP reads the annotations of a hook, and wants no text.

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fanin.codec import EXPONENT_BITS, Bfp, CodecConfig, Inceptionn, Mode
from fanin.golden.codec import codecs
from fanin.golden.ring import all_reduce as golden
from fanin.ring import RingConfig

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    raise ImportError("fanin.torch.hooks needs PyTorch: pip install 'fanin[torch]'") from error

Float32 = npt.NDArray[np.float32]
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]

_DEFAULT = RingConfig()


def inceptionn(bound: int = 10, mode: Mode = Mode.STRICT, *, config: RingConfig = _DEFAULT) -> Hook:
    """A hook for a ring whose links compress with INCEPTIONN, error bound 2^-``bound`` a hop.

    ``config``: the ring's sizes, on which the order of additions depends; its codec is replaced. Raises
    ValueError that names parameter, value and limit.
    """
    return ring(replace(config, codec=Inceptionn(bound, mode, config.lanes)))


def bfp(
    block: int = 16,
    mantissa: int = 7,
    exponent: int = EXPONENT_BITS,
    offset: int = 0,
    *,
    config: RingConfig = _DEFAULT,
) -> Hook:
    """A hook for a ring whose links compress with block floating point; else as ``inceptionn``."""
    return ring(replace(config, codec=Bfp(block, mantissa, exponent, offset)))


def ring(config: RingConfig = _DEFAULT, *, hop: Callable[[Float32], Float32] | None = None) -> Hook:
    """A hook for a ring of ``config``: without a codec by default.

    ``hop``, if given, stands for the codec's round trip (``fanin.golden.ring.all_reduce.all_reduce``): to
    try what is no codec yet, or to count what travels. The hook's state is the process group, None for all
    ranks; their order is the ring's. It yields the sum divided by their number. It raises TypeError for
    gradients that are not float32, ValueError for more than 255 ranks.
    """

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer()
        if own.dtype != torch.float32:
            raise TypeError(f"gradients must be float32, not {own.dtype}")
        group = dist.group.WORLD if state is None else state
        ranks = dist.get_world_size(group)
        parts = [torch.empty_like(own) for _ in range(ranks)]

        def add(_: object) -> torch.Tensor:
            gradients = [_to_numpy(part) for part in parts]
            total = gradients[0] if ranks == 1 else golden.all_reduce(gradients, config, hop)
            return torch.from_numpy(total / np.float32(ranks)).to(own.device)

        return dist.all_gather(parts, own.contiguous(), group=group, async_op=True).get_future().then(add)

    return hook


def roundtrip(values: torch.Tensor, codec: CodecConfig | None) -> torch.Tensor:
    """What arrives of a float32 tensor of any shape: a new tensor, on the same device, outside autograd.

    Raises TypeError for another type.
    """
    if values.dtype != torch.float32:
        raise TypeError(f"values must be float32, not {values.dtype}")
    received = codecs.roundtrip(_to_numpy(values).reshape(-1), codec)
    return torch.from_numpy(received.reshape(values.shape).copy()).to(values.device)


def _to_numpy(values: torch.Tensor) -> Float32:
    array: Float32 = values.detach().cpu().numpy()
    return array
