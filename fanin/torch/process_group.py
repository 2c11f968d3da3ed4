"""Process group ``fanin``: float32 collectives by the NICs, all others by gloo
(docs/systems/torch-backend.md).
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup, ReduceOp

from fanin.base.printable import print_note
from fanin.torch import BACKEND
from fanin.torch.adders import Adder, Float32, GoldenRing, GoldenSwitch
from fanin.torch.options import Collective, Options, Run
from fanin.torch.peers import Peers
from fanin.torch.timing import Log, keep
from fanin.torch.wire import Wire
from fanin.torch.work import InOrder, Work

_SIGNATURE_BYTES = 120  # of the text by which ranks compare their calls
_END_SECONDS = 3.0  # for a collective in flight when the process ends
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class _Called:
    """A collective as a rank calls it; ranks compare its ``str``."""

    name: str
    given: Tensors = ()
    detail: str = ""
    written: Tensors = ()

    @property
    def size(self) -> int:
        """Bytes of the rank's inputs."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.given)

    def __str__(self) -> str:
        count = sum(tensor.numel() for tensor in self.given)
        types = ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in self.given}))
        return " ".join(filter(None, (self.name, f"of {count:,} {types}" if self.given else "", self.detail)))


class FaninGroup(ProcessGroup):
    """Process group whose ranks each have a NIC.

    A thread runs collectives in the order of calls, so that a call returns at once and DistributedDataParallel
    can continue to compute. Each collective begins with a comparison of the ranks' calls. PyTorch passes all
    methods that are not overridden here to gloo. Raises InputError, DistBackendError.
    """

    def __init__(self, opts: Any, options: Options):
        rank, size = opts.group_rank, opts.group_size
        super().__init__(rank, size)
        if size > options.most_ranks:
            raise dist.DistBackendError(
                f"a {options.collective} has at most {options.most_ranks} ranks, not {size}"
            )
        self.options = options

        def store(part: str) -> dist.Store:
            return dist.PrefixStore(part, opts.store)

        names = list(opts.global_ranks_in_group) or list(range(size))
        self._peers = Peers(store("peers"), rank=rank, names=names, timeout=opts.timeout)
        self._peers.agree(f"world size {size}, {options}")
        self._gloo = dist.ProcessGroupGloo(store("gloo"), rank, size, timeout=opts.timeout)
        self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self._gloo)
        self._wire = Wire(store("wire"), rank, size, opts.timeout)
        self._adder = _adder(options, self._wire, seconds=opts.timeout.total_seconds())
        self.log = Log(options, size)
        self._report: Path | None = None
        if not opts.global_ranks_in_group:  # the group of the whole job
            keep(self.log)
            self._report = None if rank else options.report_file()
        self._calls = InOrder()
        self._failure: str | None = None
        atexit.register(self.shutdown)

    def getBackendName(self) -> str:
        """Return the name of the backend."""
        return BACKEND

    def shutdown(self) -> None:
        """End the group's threads and processes after all calls have run.

        A thread inside PyTorch's C++ code at the interpreter's exit would end the process by a signal.
        """
        atexit.unregister(self.shutdown)
        self._peers.close()
        if not self._calls.close(_END_SECONDS):  # the script has failed, so the other ranks do not arrive
            self._wire.abort()
            self._gloo.abort()
            self._calls.close(_END_SECONDS)
        self._adder.close()
        if self._report:
            self._report.write_text(f"{self.log.report()}\n")

    # ---- collectives, with the names and arguments of ProcessGroup ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Compute sums and means by the NICs, other reductions by gloo."""
        opts = opts or dist.AllreduceOptions()
        op = opts.reduceOp

        def add() -> None:
            for tensor in tensors:
                _put(self._reduced("all_reduce", _values(tensor), op), tensor)

        ours = add if self._adds(tensors, op) else None
        called = _Called("all_reduce", tensors, _name(op), written=tensors)
        return self._call(called, ours, lambda: self._gloo.allreduce(tensors, opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduce each tensor as ``allreduce`` does."""
        every = dist.AllreduceOptions()
        every.reduceOp = opts.reduceOp if opts else every.reduceOp
        return self.allreduce(tensors, every)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Compute sums and means by the NICs, as all-reduces of which each rank keeps its part."""
        opts = opts or dist.ReduceScatterOptions()
        op = opts.reduceOp
        for output, own in zip(outputs, inputs, strict=True):
            self._check_number("inputs", own)
            _check_size("output", output, own[self.rank()].numel())
        given = [tensor for own in inputs for tensor in own]

        def add() -> None:
            for output, own in zip(outputs, inputs, strict=True):
                begin = sum(tensor.numel() for tensor in own[: self.rank()])
                whole = np.concatenate([_values(tensor) for tensor in own])
                total = self._reduced("reduce_scatter", whole, op)
                _put(total[begin : begin + output.numel()], output)

        ours = add if self._adds([*given, *outputs], op) else None
        sizes = [f"{tensor.numel():,}" for tensor in given]
        detail = _name(op) if len(set(sizes)) == 1 else f"{_name(op)}, parts of {', '.join(sizes)}"
        called = _Called("reduce_scatter", given, detail, written=outputs)
        return self._call(called, ours, lambda: self._gloo.reduce_scatter(outputs, inputs, opts))

    def _reduce_scatter_base(self, output: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Work:
        """Implement ``reduce_scatter_tensor``, as ``reduce_scatter``."""
        opts = opts or dist.ReduceScatterOptions()
        op = opts.reduceOp
        _check_size("input", own, self.size() * output.numel())

        def add() -> None:
            begin = self.rank() * output.numel()
            total = self._reduced("reduce_scatter", _values(own), op)
            _put(total[begin : begin + output.numel()], output)

        ours = add if self._adds([own, output], op) else None
        called = _Called("reduce_scatter", [own], _name(op), written=[output])
        return self._call(called, ours, lambda: self._gloo._reduce_scatter_base(output, own, opts))

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Broadcast by the NICs: all ranks except the root add zeros."""
        root = opts.rootRank
        if root not in range(self.size()):
            raise ValueError(f"the root must be a rank of the group, 0 to {self.size() - 1}, not {root}")

        def spread() -> None:
            for tensor in tensors:
                values = _values(tensor)
                mine = values if root == self.rank() else np.zeros_like(values)
                _put(self._moved("broadcast", values.size, mine), tensor)

        ours = spread if self._moves(tensors) else None
        called = _Called("broadcast", tensors, f"from rank {self._peers.names[root]}", written=tensors)
        return self._call(called, ours, lambda: self._gloo.broadcast(tensors, opts))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Gather by the NICs: each rank adds zeros in the places of the others' values."""
        for own, taken in zip(inputs, outputs, strict=True):
            self._check_number("outputs", taken)
            for output in taken:
                _check_size("output", output, own.numel())
        written = [tensor for taken in outputs for tensor in taken]

        def gather() -> None:
            for own, taken in zip(inputs, outputs, strict=True):
                for values, tensor in zip(self._gathered(_values(own)), taken, strict=True):
                    _put(values, tensor)

        ours = gather if self._moves([*inputs, *written]) else None
        called = _Called("all_gather", inputs, written=written)
        return self._call(called, ours, lambda: self._gloo.allgather(outputs, inputs, *_given(opts)))

    def _allgather_base(self, output: torch.Tensor, own: torch.Tensor, opts: Any = None) -> Work:
        """Implement ``all_gather_into_tensor``, as ``allgather``."""
        _check_size("output", output, self.size() * own.numel())

        def gather() -> None:
            _put(self._gathered(_values(own)), output)

        ours = gather if self._moves([own, output]) else None
        called = _Called("all_gather", [own], written=[output])
        return self._call(called, ours, lambda: self._gloo._allgather_base(output, own, *_given(opts)))

    # PyTorch 2.13's names of these two.
    reduce_scatter_single, all_gather_single = _reduce_scatter_base, _allgather_base

    def barrier(self, opts: Any = None) -> Work:
        """Synchronise by the NICs: add a zero from each rank."""

        def meet() -> None:
            self._sum("barrier", 0, np.zeros(1, np.float32))

        ours = meet if self.size() > 1 else None
        return self._call(_Called("barrier"), ours, lambda: self._gloo.barrier(*_given(opts)))

    def _check_number(self, name: str, tensors: Tensors) -> None:
        """Raise ValueError unless there is a tensor per rank."""
        if len(tensors) != self.size():
            raise ValueError(f"the {name} must be {self.size()} tensors, one for each rank, not {len(tensors)}")

    # ---- work of the NICs ----

    def _adds(self, tensors: Tensors, op: ReduceOp) -> bool:
        return _name(op) in ("sum", "avg") and self._carries(tensors)

    def _moves(self, tensors: Tensors) -> bool:
        """Return whether the NICs can move these tensors unchanged, which excludes a lossy codec."""
        return self.options.codec is None and self._carries(tensors)

    def _carries(self, tensors: Tensors) -> bool:
        return self.size() > 1 and all(
            tensor.dtype == torch.float32 and tensor.layout == torch.strided and tensor.numel()
            for tensor in tensors
        )

    def _sum(self, name: str, count: int, vector: Float32) -> Float32:
        """Return the sum of the ranks' vectors, for a collective of ``count`` values."""
        total = self._adder.all_reduce(vector)
        self.log.nics(name, count, vector, total.seconds)
        return total.values

    def _reduced(self, name: str, values: Float32, op: ReduceOp) -> Float32:
        total = self._sum(name, values.size, values)
        return total / np.float32(self.size()) if op == ReduceOp.AVG else total

    def _moved(self, name: str, count: int, values: Float32) -> Float32:
        """Return the values of the only rank that has any, bit for bit.

        Each value is sent as two integers of 16 bits, which adding zeros does not change. Adding floats would
        change −0, subnormals and NaNs.
        """
        halves = values.view(np.uint16).astype(np.float32)
        return self._sum(name, count, halves).astype(np.uint16).view(np.float32)

    def _gathered(self, own: Float32) -> Float32:
        """Return the values of all ranks, a row per rank."""
        rows = np.zeros((self.size(), own.size), np.float32)
        rows[self.rank()] = own
        return self._moved("all_gather", own.size, rows.reshape(-1)).reshape(rows.shape)

    # ---- execution of a collective ----

    def _call(self, called: _Called, ours: Callable[[], None] | None, gloo: Callable[[], dist.Work]) -> Work:
        """Queue a collective: ``ours``, or gloo's if ``ours`` is None."""
        self.log.begin()
        try:
            return self._calls.call(lambda: self._carry_out(called, ours, gloo))
        except dist.DistBackendError:  # the group has been destroyed
            self.log.end()
            raise

    def _carry_out(
        self, called: _Called, ours: Callable[[], None] | None, gloo: Callable[[], dist.Work]
    ) -> list[torch.Tensor]:
        number = self._peers.begin()
        try:
            if self._failure:
                raise dist.DistBackendError(self._failure)
            self._compare(number, str(called))
            if ours:
                ours()
            else:
                begun = time.monotonic()
                gloo().wait()
                self.log.gloo(called.size, time.monotonic() - begun)
        except dist.DistBackendError as error:
            self._fail(str(error))
            raise
        except RuntimeError as error:  # from gloo
            message = self._peers.blame(f"collective {number}, {called}")
            if message is None:
                raise
            self._fail(message)
            raise dist.DistBackendError(message) from error
        finally:
            self.log.end()
        return list(called.written)

    def _compare(self, number: int, called: str) -> None:
        """Raise DistBackendError unless all ranks make the same call."""
        if self.size() == 1:
            return
        text = np.zeros(_SIGNATURE_BYTES, np.uint8)
        encoded = called.encode()[:_SIGNATURE_BYTES]
        text[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        said = [row.tobytes().rstrip(b"\0").decode() for row in self._wire.all_gather(text)]
        for rank, theirs in enumerate(said):
            if theirs != said[0]:
                names = self._peers.names
                raise dist.DistBackendError(
                    f"collective {number}: rank {names[0]} calls {said[0]}, rank {names[rank]} {theirs}: "
                    "all ranks must call the same"
                )

    def _fail(self, message: str) -> None:
        """Make all later collectives of this group fail; print one line, as PyTorch wraps exceptions in
        many.
        """
        if not self._failure:
            print_note(f"{BACKEND}: {message}")
            self._failure = message
            self._peers.tell()
            with contextlib.suppress(RuntimeError):  # the store may have ended
                self._peers.linger()


def _adder(options: Options, wire: Wire, *, seconds: float) -> Adder:
    """Return the adder of the options; ``seconds`` is the timeout of an all-reduce in RTL."""
    ring = options.collective is Collective.RING
    if options.run is Run.GOLDEN:
        return GoldenRing(options, wire) if ring else GoldenSwitch(wire)
    from fanin.torch.rtl import EmittedSwitch, RtlRing  # loads the simulator's modules

    return RtlRing(options, wire, seconds=seconds) if ring else EmittedSwitch(options, wire)


def _check_size(name: str, tensor: torch.Tensor, values: int) -> None:
    """Raise ValueError unless a tensor has the size that the collective's other tensors imply."""
    if tensor.numel() != values:
        raise ValueError(f"the {name} must have {values:,} values, not {tensor.numel():,}")


def _name(op: ReduceOp) -> str:
    """Return ``sum`` and so on; a ReduceOp equals a member of its class, but is not one."""
    return next((name.lower() for name in _OPERATIONS if op == getattr(ReduceOp, name)), "another reduction")


def _given(opts: Any) -> tuple[Any, ...]:
    """Return options as an argument list; empty for None, which gloo does not accept."""
    return () if opts is None else (opts,)


def _view(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a view of the tensor's memory; autograd does not see writes to it, as with gloo."""
    view: npt.NDArray[Any] = tensor.detach().numpy()
    return view


def _values(tensor: torch.Tensor) -> Float32:
    return np.ascontiguousarray(_view(tensor)).reshape(-1)


def _put(values: Float32, tensor: torch.Tensor) -> None:
    view = _view(tensor)
    view[...] = values.reshape(view.shape)
