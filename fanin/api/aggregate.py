"""``fanin.aggregate``: sums of arrays through the emitted switch program."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin import fixed
from fanin.api.arguments import check_integers, check_numbers, member_of, path_of
from fanin.api.shown import DisplayedResult
from fanin.base.errors import InputError
from fanin.base.scratch import output_file
from fanin.fixed import VALUE_BITS
from fanin.job import JobCounters
from fanin.link import LinkConfig, check_delay
from fanin.p4.aggregation import ProgramConfig, Target
from fanin.report.html import Rows
from fanin.runs.output import check_writable
from fanin.sim.network import NetworkConfig
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.allreduce import AllReduceResult, allreduce
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import check_switch, make_switch
from fanin.wire.aggregation import MAX_WORKERS, Encap, Protocol

Array = npt.NDArray[Any]
Int32 = npt.NDArray[np.int32]
MAX_FRAC = 1100  # no float64 needs more fraction bits
_INT64_MAX = np.iinfo(np.int64).max


@dataclass(frozen=True, repr=False)
class Aggregated(DisplayedResult):
    """Sum of the workers' arrays, and the time and packets that it took."""

    values: Array  #: the sum, with the arrays' shape and type
    frac: int  #: fraction bits of the integers that the switch added
    clamped: int  #: number of workers' values that were outside the clamp
    workers: int
    time_ns: float  #: simulated time until the last worker had all sums
    latencies_ns: npt.NDArray[np.float64]  #: latency of each packet's AllReduce at each worker
    packets: int  #: packets that workers sent
    retransmissions: int  #: retransmissions among them
    counters: JobCounters  #: counters of the switch

    @property
    def title(self) -> str:
        """Description of the sum in one line."""
        return f"sum of {self.workers} × {'×'.join(map(str, self.values.shape))} {self.values.dtype}"

    @property
    def facts(self) -> Rows:
        """Time, packets, and number format."""
        median, percentile_99 = np.percentile(self.latencies_ns, [50, 99])
        return [
            ("time", f"{self.time_ns:,.0f} ns, simulated"),
            ("AllReduce", f"{median:,.0f} ns median, {percentile_99:,.0f} ns 99th percentile"),
            ("packets", f"{self.packets:,}, {self.retransmissions:,} of them sent again"),
            ("number format", f"32-bit integers, {self.frac} fraction bits"),
            ("clamped", f"{self.clamped:,} values"),
        ]


def aggregate(
    arrays: Sequence[npt.ArrayLike],
    *,
    frac: int | None = None,
    target: str = "v1model",
    protocol: str = "p4sgd",
    encap: str = "l2",
    slots: int = 64,
    values: int = 32,
    switch: str = "embedded",
    drop: float = LinkConfig.drop,
    duplicate: float = LinkConfig.duplicate,
    reorder: float = LinkConfig.reorder,
    corrupt: float = LinkConfig.corrupt,
    gbps: float = LinkConfig.gbps,
    link_ns: float = LinkConfig.delay_ns,
    switch_ns: float = NetworkConfig.switch_ns,
    timeout_ns: float | None = None,
    retries: int = NetworkConfig.retries,
    seed: int = 0,
    pcap: str | Path | None = None,
) -> Aggregated:
    """Add the workers' ``arrays``, all of one shape, through a switch that runs the emitted program.

    Floats are rounded to integers of ``frac`` fraction bits, by default the most for which no value is clamped.
    Integers are added unchanged. The sum has the arrays' type; for PyTorch's bfloat16 it has float32. A warning
    counts values that were clamped. The other arguments are options of ``fanin p4 emit`` and ``fanin train``.
    ``pcap`` is a file for the frames at the switch. Raises InputError for bad arguments, CheckFailed if a
    packet was given up.

    Source: P4SGD, section 4; docs/systems/aggregation.md.
    """
    check_integers(slots=slots, values=values, retries=retries, seed=seed)
    check_numbers(drop=drop, duplicate=duplicate, reorder=reorder, corrupt=corrupt)
    check_numbers(gbps=gbps, link_ns=link_ns, switch_ns=switch_ns)
    if timeout_ns is not None:
        check_numbers(timeout_ns=timeout_ns)
    if frac is not None:
        check_integers(frac=frac)
    slots, values, retries, seed = map(int, (slots, values, retries, seed))  # NumPy's integers would overflow
    stacked = _stack(arrays)
    integers, frac = _to_integers(stacked, frac)
    in_range = fixed.clamp(integers, fixed.clamp_bits(len(stacked)))
    kind = member_of(SwitchKind, "switch", switch)
    try:
        program = ProgramConfig(
            target=member_of(Target, "target", target),
            protocol=member_of(Protocol, "protocol", protocol),
            workers=len(stacked),
            slots=slots,
            values=values,
            encap=member_of(Encap, "encap", encap),
        )
        if slots < program.protocol.slots_per_operation:
            raise ValueError(f"slots must be at least {program.protocol.slots_per_operation}, not {slots}")
        check_delay("link_ns", link_ns)
        link = LinkConfig(
            delay_ns=link_ns, gbps=gbps, drop=drop, duplicate=duplicate, reorder=reorder, corrupt=corrupt
        )
        network = NetworkConfig(
            link=link, switch_ns=switch_ns, timeout_ns=timeout_ns, retries=retries, seed=seed, switch=kind
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    clamped = int((in_range != integers).sum())
    if clamped:
        bits = fixed.clamp_bits(len(stacked))
        share = f"{clamped:,} of {integers.size:,} values exceed the range [-2^{bits}, 2^{bits})"
        warnings.warn(f"fanin.aggregate: {share} of {len(stacked)} workers and were clamped", stacklevel=2)
    rows = in_range.reshape(len(stacked), -1).astype(np.int32)
    reduced = _all_reduce(rows, program, network, None if pcap is None else path_of("pcap", pcap))
    return Aggregated(
        values=_in_type_of(stacked, reduced.sums, frac),
        frac=frac,
        clamped=clamped,
        workers=len(stacked),
        time_ns=reduced.time_ns,
        latencies_ns=np.array(reduced.latencies_ns),
        packets=reduced.sent,
        retransmissions=reduced.retransmissions,
        counters=reduced.counters,
    )


def _stack(arrays: Sequence[npt.ArrayLike]) -> Array:
    """Return the arrays with a row per worker. Raises InputError for arrays that cannot be added."""
    try:
        rows = [_as_array(array) for array in arrays]
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor that requires gradients
        raise InputError(f"arrays must be an array for each worker: {error}") from error
    if not 1 <= len(rows) <= MAX_WORKERS:
        raise InputError(f"arrays must be of 1 to {MAX_WORKERS} workers, not {len(rows)}")
    for number, row in enumerate(rows):
        if row.shape != rows[0].shape:
            shapes = f"worker 0's is {rows[0].shape}, {number}'s {row.shape}"
            raise InputError(f"arrays must have one shape: {shapes}")
        if row.dtype.kind not in "fiu" and row.dtype.name != "bfloat16":
            raise InputError(f"arrays must be of real numbers: worker {number}'s is {row.dtype}")
        if not np.isfinite(row).all():
            raise InputError(f"arrays must be finite: worker {number}'s is not")
    if not rows[0].size:
        raise InputError("arrays must not be empty")
    return np.stack(rows)


def _as_array(array: npt.ArrayLike) -> Array:
    """Return an array; PyTorch's bfloat16, which NumPy lacks, becomes float32."""
    is_bfloat16 = str(getattr(array, "dtype", "")) == "torch.bfloat16"
    return np.asarray(array.float() if is_bfloat16 else array)  # type: ignore[union-attr]


def _to_integers(stacked: Array, frac: int | None) -> tuple[npt.NDArray[np.int64], int]:
    """Return the integers before the clamp, and their fraction bits. Raises InputError."""
    if stacked.dtype.kind in "iu":
        if frac:
            raise InputError(f"frac is for floats, not for {stacked.dtype}")
        if stacked.dtype.kind == "u" and stacked.max() > _INT64_MAX:
            raise InputError(f"arrays must be less than 2^63, not {stacked.max()}")
        return stacked.astype(np.int64), 0
    floats = stacked.astype(np.float64)
    bits = fixed.clamp_bits(len(stacked))
    maximum = float(np.abs(floats).max())
    if frac is None:
        # The largest frac with maximum · 2^frac < 2^bits; one less if rounding reaches 2^bits, which overflows.
        frac = bits - math.frexp(maximum)[1] if maximum else 0
        frac -= bool(np.rint(math.ldexp(maximum, frac)) > (1 << bits) - 1)
        frac = min(frac, MAX_FRAC)
    if not -MAX_FRAC <= frac <= MAX_FRAC:
        raise InputError(f"frac must be in -{MAX_FRAC}…{MAX_FRAC}, not {frac!r}")
    # Values far outside the clamp need not be exact, only outside.
    limit = float(1 << VALUE_BITS)
    return np.rint(np.clip(np.ldexp(floats, frac), -limit, limit)).astype(np.int64), frac


def _all_reduce(
    rows: Int32, program: ProgramConfig, network: NetworkConfig, pcap: Path | None
) -> AllReduceResult:
    check_switch(network.switch)
    with contextlib.ExitStack() as stack:
        switch = make_switch(len(rows), kind=network.switch, config=program)
        stack.callback(getattr(switch, "close", lambda: None))  # BMv2 runs in a process
        capture = None
        if pcap is not None:
            check_writable(pcap)
            capture = PcapWriter(stack.enter_context(output_file(pcap))).write
        return allreduce(rows, switch=switch, program=program, network=network, capture=capture)


def _in_type_of(stacked: Array, sums: Int32, frac: int) -> Array:
    """Return the sums in the arrays' shape and type."""
    values = sums.reshape(stacked.shape[1:])
    if stacked.dtype.kind in "iu":
        return values
    return np.ldexp(values.astype(np.float64), -frac).astype(stacked.dtype)
