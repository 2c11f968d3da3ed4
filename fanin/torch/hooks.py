"""Communication hooks of DistributedDataParallel: addition of gradients by a ring of NICs, and top-k.

``inceptionn``, ``bfp``, ``ring``, ``nics`` and ``top_k`` make hooks::

    model.register_comm_hook(None, inceptionn(bound=10))
    model.register_comm_hook(ErrorFeedback(model), top_k(0.01))

``inceptionn``, ``bfp`` and ``ring`` gather the gradients of all ranks with ``all_gather``. Each rank then adds
them as a ring of NICs would, bit for bit (``fanin.ring.golden.all_reduce``). The arithmetic is the NIC's;
traffic and time are those of ``all_gather``. With ``nics`` the nodes of a process group ``fanin`` add the
gradients. A bucket corresponds to a descriptor (address, count) of the NIC.

The state of every hook is the process group, None for all ranks, or an ``ErrorFeedback``.
"""

# No ``from __future__ import annotations``: DDP checks the annotations of a hook, which must not be text.

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import EXPONENT_BITS, Bfp, CodecConfig, Inceptionn, Mode
from fanin.codec.golden import codecs
from fanin.ring.facts import RingConfig
from fanin.ring.golden import all_reduce as golden

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    raise ImportError("fanin.torch.hooks needs PyTorch: pip install 'fanin[torch]'") from error

from fanin.torch.feedback import ErrorFeedback
from fanin.torch.options import Options

Float32 = npt.NDArray[np.float32]
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]

_DEFAULT = RingConfig()


def inceptionn(bound: int = 10, mode: Mode = Mode.STRICT, *, config: RingConfig = _DEFAULT) -> Hook:
    """Return a hook for a ring whose links compress with INCEPTIONN, with error bound 2^-``bound`` per hop.

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
    """Return a hook for a ring whose links compress with block floating point; otherwise as ``inceptionn``."""
    return ring(replace(config, codec=Bfp(block, mantissa, exponent, offset)))


def ring(config: RingConfig = _DEFAULT, *, hop: Callable[[Float32], Float32] | None = None) -> Hook:
    """Return a hook for a ring of ``config``, by default without a codec.

    ``hop`` replaces the codec's round trip (``fanin.ring.golden.all_reduce.all_reduce``), for example to try a
    new codec or to count traffic. Ranks form the ring in their order. The hook returns the sum divided by the
    number of ranks. It raises TypeError for gradients that are not float32, ValueError for more than 255 ranks.
    """

    def transmit(values: torch.Tensor) -> torch.Tensor:
        if hop is None:
            return roundtrip(values, config.codec)
        return torch.from_numpy(hop(_to_numpy(values))).to(values.device)

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        # With error feedback, ``transmit`` has been applied here, and the ring's first hop applies it again.
        # INCEPTIONN in strict mode is not idempotent; that second loss is not part of the residual.
        sent = _compensated(state, bucket, transmit)
        group = _group(state)
        ranks = dist.get_world_size(group)
        parts = [torch.empty_like(sent) for _ in range(ranks)]

        def add(_: object) -> torch.Tensor:
            gradients = [_to_numpy(part) for part in parts]
            total = gradients[0] if ranks == 1 else golden.all_reduce(gradients, config, hop)
            return torch.from_numpy(total / np.float32(ranks)).to(sent.device)

        return dist.all_gather(parts, sent.contiguous(), group=group, async_op=True).get_future().then(add)

    return hook


def nics() -> Hook:
    """Return a hook for a process group of the backend ``fanin``, whose nodes add with their codec.

    The hook divides the sum by the number of ranks. Without a hook DistributedDataParallel divides the
    gradients before they are sent, so an absolute error bound would lose more. The hook raises TypeError for
    gradients that are not float32, ValueError for a group of another backend.
    """

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        group = _group(state)
        options = getattr(group, "options", None)
        if not isinstance(options, Options):
            raise ValueError("nics() needs a process group of the backend 'fanin'")
        gradients = _compensated(state, bucket, lambda values: roundtrip(values, options.codec))

        def mean(sums: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            return sums.value()[0] / dist.get_world_size(group)

        return dist.all_reduce(gradients, group=group, async_op=True).get_future().then(mean)

    return hook


def top_k(share: float = 0.01) -> Hook:
    """Return a hook that sends a ``share`` of each bucket, rounded up: the largest magnitudes and their
    indices.

    One ``all_gather`` of float32 carries values, and indices as bits. Values are added in the order of ranks,
    and the sum is divided by their number. Without ``ErrorFeedback`` the other values are lost. Raises
    ValueError unless the share is above 0 and at most 1; the hook raises TypeError for gradients that are not
    float32.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share must be above 0, and at most 1, not {share!r}")

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        count = math.ceil(share * bucket.buffer().numel())
        gradients = _compensated(state, bucket, lambda values: _largest(values, count))
        # Without error feedback nothing has been selected yet; with it, this finds the selected values again.
        indices = gradients.abs().topk(count).indices
        sent = torch.cat([gradients[indices], indices.to(torch.int32).view(torch.float32)])
        group = _group(state)
        parts = [torch.empty_like(sent) for _ in range(dist.get_world_size(group))]

        def add(_: object) -> torch.Tensor:
            total = torch.zeros_like(gradients)
            for part in parts:
                values, index_bits = part.split(count)
                total.index_add_(0, index_bits.view(torch.int32), values)
            return total / len(parts)

        return dist.all_gather(parts, sent, group=group, async_op=True).get_future().then(add)

    return hook


def _largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Return the ``count`` values of greatest magnitude in their places, and zeros elsewhere."""
    indices = values.abs().topk(count).indices
    return torch.zeros_like(values).index_copy_(0, indices, values[indices])


def _group(state: object) -> dist.ProcessGroup:
    group = state.group if isinstance(state, ErrorFeedback) else state
    chosen_group: dist.ProcessGroup = dist.group.WORLD if group is None else group
    return chosen_group


def _compensated(
    state: object, bucket: dist.GradBucket, transmit: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the values that a rank sends; with error feedback, also store the new residual in ``state``.

    Without error feedback: the bucket's gradients. With it: ``transmit`` of gradients plus residuals, that is
    the values that arrive; the difference becomes the new residual. Raises TypeError unless they are float32.
    """
    gradients: torch.Tensor = bucket.buffer()
    if gradients.dtype != torch.float32:
        raise TypeError(f"gradients must be float32, not {gradients.dtype}")
    if not isinstance(state, ErrorFeedback):
        return gradients
    corrected = state.corrected(bucket)
    sent = transmit(corrected)
    state.keep(bucket, corrected - sent)
    return sent


def roundtrip(values: torch.Tensor, codec: CodecConfig | None) -> torch.Tensor:
    """Return a float32 tensor after the codec: a new tensor of its shape, on its device, outside autograd.

    Raises TypeError for another type.
    """
    if values.dtype != torch.float32:
        raise TypeError(f"values must be float32, not {values.dtype}")
    received = codecs.roundtrip(_to_numpy(values).reshape(-1), codec)
    return torch.from_numpy(received.reshape(values.shape).copy()).to(values.device)


def _to_numpy(values: torch.Tensor) -> Float32:
    array: Float32 = values.detach().cpu().numpy()
    return array
