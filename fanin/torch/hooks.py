"""Communication hooks of DistributedDataParallel: addition of gradients by a ring of NICs, and top-k.

``inceptionn``, ``bfp``, ``mx``, ``bf16``, ``fp16``, ``ring``, ``nics`` and ``top_k`` make hooks::

    model.register_comm_hook(None, inceptionn(bound=10))
    model.register_comm_hook(ErrorFeedback(model), mx(Element.E2M1))

All but ``nics`` and ``top_k`` gather the gradients of all ranks with ``all_gather``. Each rank then adds them
as a ring of NICs would, bit for bit (``fanin.ring.golden.all_reduce``). The arithmetic is the NIC's; traffic
and time are those of ``all_gather``. With ``nics`` the nodes of a process group ``fanin`` add the gradients. A
bucket corresponds to a descriptor (address, count) of the NIC.

Gradients are float32, or with a ring also bfloat16 or float16. The latter are gathered as they are, added in
float32, and the mean is rounded once, to nearest even.

The state of every hook is the process group, None for all ranks, or an ``ErrorFeedback``.
"""

# No ``from __future__ import annotations``: DDP checks the annotations of a hook, which must not be text.

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import EXPONENT_BITS, Bf16, Bfp, CodecConfig, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import codecs
from fanin.codec.golden.rounding import derived_seed
from fanin.ring.facts import RingConfig
from fanin.ring.golden import all_reduce as golden
from fanin.ring.golden.random_bits import RandomBits

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as error:
    raise ImportError("fanin.torch.hooks needs PyTorch: pip install 'fanin[torch]'") from error

from fanin.torch.feedback import ErrorFeedback
from fanin.torch.halves import FORMATS
from fanin.torch.options import Options

Float32 = npt.NDArray[np.float32]
Hook = Callable[[object, dist.GradBucket], torch.futures.Future[torch.Tensor]]

_DEFAULT = RingConfig()
_TYPES = (torch.float32, *FORMATS)  # of gradients that a ring adds
_OWN, _RING = 1, 2  # seeds: of the values that a rank sends with error feedback, and of the ring's hops


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


def mx(
    element: Element = Element.E4M3,
    block: int = 32,
    rounding: Rounding = Rounding.NEAREST,
    *,
    config: RingConfig = _DEFAULT,
) -> Hook:
    """Return a hook for a ring whose links compress with MX; otherwise as ``inceptionn``."""
    return ring(replace(config, codec=Mx(element, block, rounding)))


def bf16(rounding: Rounding = Rounding.NEAREST, *, config: RingConfig = _DEFAULT) -> Hook:
    """Return a hook for a ring whose links carry bfloat16; otherwise as ``inceptionn``."""
    return ring(replace(config, codec=Bf16(rounding)))


def fp16(rounding: Rounding = Rounding.NEAREST, *, config: RingConfig = _DEFAULT) -> Hook:
    """Return a hook for a ring whose links carry binary16; otherwise as ``inceptionn``.

    A partial sum above 65504 becomes infinity.
    """
    return ring(replace(config, codec=Fp16(rounding)))


def ring(config: RingConfig = _DEFAULT, *, hop: Callable[[Float32], Float32] | None = None) -> Hook:
    """Return a hook for a ring of ``config``, by default without a codec.

    ``hop`` replaces the codec's round trip (``fanin.ring.golden.all_reduce.all_reduce``), for example to try a
    new codec or to count traffic. Ranks form the ring in their order. The hook returns the sum divided by the
    number of ranks. With stochastic rounding each call has other random bits, the same ones on all ranks for
    the sum. It raises TypeError for gradients of another type than float32, bfloat16 or float16, ValueError for
    more than 255 ranks.
    """
    calls = _Calls()

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        _check_type(bucket, _TYPES)
        group = _group(state)
        call, ranks = calls.next(group), dist.get_world_size(group)

        def transmit(values: torch.Tensor) -> torch.Tensor:
            if hop is None:
                return roundtrip(values, config.codec, derived_seed(_OWN, dist.get_rank(group), call))
            return torch.from_numpy(hop(_to_numpy(values))).to(values.device)

        # With error feedback, ``transmit`` has been applied here, and the ring's first hop applies it again.
        # INCEPTIONN in strict mode is not idempotent; that second loss is not part of the residual.
        sent = _compensated(state, bucket, transmit)
        parts = [torch.empty_like(sent) for _ in range(ranks)]

        def add(_: object) -> torch.Tensor:
            gradients = [_to_numpy(part.float()) for part in parts]
            bits = RandomBits(derived_seed(_RING, call))
            total = gradients[0] if ranks == 1 else golden.all_reduce(gradients, config, hop, bits=bits)
            return torch.from_numpy(total / np.float32(ranks)).to(sent.device, sent.dtype)

        return dist.all_gather(parts, sent.contiguous(), group=group, async_op=True).get_future().then(add)

    return hook


def nics() -> Hook:
    """Return a hook for a process group of the backend ``fanin``, whose nodes add with their codec.

    The hook divides the sum by the number of ranks. Without a hook DistributedDataParallel divides the
    gradients before they are sent, so an absolute error bound would lose more. The hook raises TypeError for
    gradients of a type that the nodes do not add, ValueError for a group of another backend.
    """
    calls = _Calls()

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        group = _group(state)
        options = getattr(group, "options", None)
        if not isinstance(options, Options):
            raise ValueError("nics() needs a process group of the backend 'fanin'")
        _check_type(bucket, _TYPES if options.adds_halves else (torch.float32,))
        call = calls.next(group)

        def transmit(values: torch.Tensor) -> torch.Tensor:
            return roundtrip(values, options.codec, derived_seed(_OWN, dist.get_rank(group), call))

        gradients = _compensated(state, bucket, transmit)

        def mean(means: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            return means.value()[0]

        work = dist.all_reduce(gradients, op=dist.ReduceOp.AVG, group=group, async_op=True)
        return work.get_future().then(mean)

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
        _check_type(bucket, (torch.float32,))
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


def _check_type(bucket: dist.GradBucket, types: Sequence[torch.dtype]) -> None:
    """Raise TypeError unless the bucket's gradients have one of ``types``."""
    if (found := bucket.buffer().dtype) not in types:
        names = " or ".join(str(each).removeprefix("torch.") for each in types)
        raise TypeError(f"gradients must be {names}, not {found}")


class _Calls:
    """Numbers of a hook's calls in each group, which are the same on all of its ranks."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, group: dist.ProcessGroup) -> int:
        """Return the number of this call."""
        number = self._counts.get(group.group_name, 0)
        self._counts[group.group_name] = number + 1
        return number


def _compensated(
    state: object, bucket: dist.GradBucket, transmit: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the values that a rank sends; with error feedback, also store the new residual in ``state``.

    Without error feedback: the bucket's gradients. With it: ``transmit`` of gradients plus residuals in
    float32, rounded to the gradients' type, that is the values that arrive; the difference becomes the new
    residual.
    """
    gradients: torch.Tensor = bucket.buffer()
    if not isinstance(state, ErrorFeedback):
        return gradients
    corrected = state.corrected(bucket)
    sent = transmit(corrected).to(gradients.dtype)
    state.keep(bucket, corrected - sent)
    return sent


def roundtrip(values: torch.Tensor, codec: CodecConfig | None, seed: int = 1) -> torch.Tensor:
    """Return a float32 tensor after the codec: a new tensor of its shape, on its device, outside autograd.

    ``seed``: start of the random bits of stochastic rounding, 1 to 2^32 - 1. Raises TypeError for another type.
    """
    if values.dtype != torch.float32:
        raise TypeError(f"values must be float32, not {values.dtype}")
    received = codecs.roundtrip(_to_numpy(values).reshape(-1), codec, seed)
    return torch.from_numpy(received.reshape(values.shape).copy()).to(values.device)


def _to_numpy(values: torch.Tensor) -> Float32:
    array: Float32 = values.detach().cpu().numpy()
    return array
