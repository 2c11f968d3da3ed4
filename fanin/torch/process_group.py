"""The process group ``fanin``: float32 by the NICs, all else by gloo (docs/systems/torch-backend.md)."""

from __future__ import annotations

import atexit
import contextlib
import sys
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

from fanin.torch import BACKEND
from fanin.torch.adders import Adder, Float32, GoldenRing, GoldenSwitch
from fanin.torch.options import Collective, Options, Run
from fanin.torch.peers import Peers
from fanin.torch.timing import Log, keep
from fanin.torch.wire import Wire
from fanin.torch.work import InOrder, Work

_SIGNATURE_BYTES = 120  # of the text by which ranks compare what they call
_END_SECONDS = 3.0  # for a collective that is under way when the process ends
_OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class _Called:
    """A collective as a rank calls it; ``str`` is what the ranks compare."""

    name: str
    given: Tensors = ()
    detail: str = ""
    written: Tensors = ()

    @property
    def size(self) -> int:
        """Bytes that the rank gives."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.given)

    def __str__(self) -> str:
        count = sum(tensor.numel() for tensor in self.given)
        types = ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in self.given}))
        return " ".join(filter(None, (self.name, f"of {count:,} {types}" if self.given else "", self.detail)))


class FaninGroup(ProcessGroup):
    """The ranks of a group, each with a NIC.

    A thread carries collectives out in the order of calls, so that a call returns at once and
    DistributedDataParallel goes on computing. Each begins with a comparison of what the ranks call. What is not
    overridden here, PyTorch hands to gloo. Raises InputError, DistBackendError.
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
        if not opts.global_ranks_in_group:  # of the whole job
            keep(self.log)
            self._report = None if rank else options.report_file()
        self._calls = InOrder()
        self._failure: str | None = None
        atexit.register(self.shutdown)

    def getBackendName(self) -> str:
        """The name by which it is chosen."""
        return BACKEND

    def shutdown(self) -> None:
        """End the group's threads, and what they have started, once the calls are carried out.

        A thread that PyTorch's C++ holds when the interpreter ends would end the process by a signal.
        """
        atexit.unregister(self.shutdown)
        self._peers.close()
        if not self._calls.close(_END_SECONDS):  # the script has failed, and the others do not come
            self._wire.abort()
            self._gloo.abort()
            self._calls.close(_END_SECONDS)
        self._adder.close()
        if self._report:
            self._report.write_text(f"{self.log.report()}\n")

    # ---- collectives, by the names and with the arguments that ProcessGroup gives them ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Sums and means by the NICs."""
        opts = opts or dist.AllreduceOptions()
        op = opts.reduceOp

        def add() -> None:
            for tensor in tensors:
                _put(self._reduced("all_reduce", _values(tensor), op), tensor)

        ours = add if self._adds(tensors, op) else None
        called = _Called("all_reduce", tensors, _name(op), written=tensors)
        return self._call(called, ours, lambda: self._gloo.allreduce(tensors, opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """As ``allreduce`` of each."""
        every = dist.AllreduceOptions()
        every.reduceOp = opts.reduceOp if opts else every.reduceOp
        return self.allreduce(tensors, every)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Sums and means by the NICs, which know all-reduces: each rank keeps its part."""
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
        """``reduce_scatter_tensor``: as ``reduce_scatter``."""
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
        """By the NICs: all but the root give zeros."""
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
        """By the NICs: each rank gives zeros where the others have values."""
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
        """``all_gather_into_tensor``: as ``allgather``."""
        _check_size("output", output, self.size() * own.numel())

        def gather() -> None:
            _put(self._gathered(_values(own)), output)

        ours = gather if self._moves([own, output]) else None
        called = _Called("all_gather", [own], written=[output])
        return self._call(called, ours, lambda: self._gloo._allgather_base(output, own, *_given(opts)))

    # What PyTorch 2.13 calls these two.
    reduce_scatter_single, all_gather_single = _reduce_scatter_base, _allgather_base

    def barrier(self, opts: Any = None) -> Work:
        """By the NICs: the sum of a zero from each rank."""

        def meet() -> None:
            self._sum("barrier", 0, np.zeros(1, np.float32))

        ours = meet if self.size() > 1 else None
        return self._call(_Called("barrier"), ours, lambda: self._gloo.barrier(*_given(opts)))

    def _check_number(self, name: str, tensors: Tensors) -> None:
        """Raise ValueError unless there is a tensor for each rank."""
        if len(tensors) != self.size():
            raise ValueError(f"the {name} must be {self.size()} tensors, one for each rank, not {len(tensors)}")

    # ---- what the NICs do ----

    def _adds(self, tensors: Tensors, op: ReduceOp) -> bool:
        return _name(op) in ("sum", "avg") and self._carries(tensors)

    def _moves(self, tensors: Tensors) -> bool:
        """A codec that is good enough for gradients may not be for what is only handed on."""
        return self.options.codec is None and self._carries(tensors)

    def _carries(self, tensors: Tensors) -> bool:
        return self.size() > 1 and all(
            tensor.dtype == torch.float32 and tensor.layout == torch.strided and tensor.numel()
            for tensor in tensors
        )

    def _sum(self, name: str, count: int, vector: Float32) -> Float32:
        """The sum of the ranks' vectors, for a collective of ``count`` values."""
        total = self._adder.all_reduce(vector)
        self.log.nics(name, count, vector, total.seconds)
        return total.values

    def _reduced(self, name: str, values: Float32, op: ReduceOp) -> Float32:
        total = self._sum(name, values.size, values)
        return total / np.float32(self.size()) if op == ReduceOp.AVG else total

    def _moved(self, name: str, count: int, values: Float32) -> Float32:
        """What the only rank with values has, bit for bit: adders would change −0, subnormals and NaNs.

        So each value travels as two whole numbers of 16 bits, which adding zeros does not change.
        """
        halves = values.view(np.uint16).astype(np.float32)
        return self._sum(name, count, halves).astype(np.uint16).view(np.float32)

    def _gathered(self, own: Float32) -> Float32:
        """The values of all ranks, a row each."""
        rows = np.zeros((self.size(), own.size), np.float32)
        rows[self.rank()] = own
        return self._moved("all_gather", own.size, rows.reshape(-1)).reshape(rows.shape)

    # ---- how a collective is carried out ----

    def _call(self, called: _Called, ours: Callable[[], None] | None, gloo: Callable[[], dist.Work]) -> Work:
        """Queue a collective: ``ours``, or gloo's where that is None."""
        self.log.begin()
        try:
            return self._calls.call(lambda: self._carry_out(called, ours, gloo))
        except dist.DistBackendError:  # the group is destroyed
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
        except RuntimeError as error:  # gloo's
            message = self._peers.blame(f"collective {number}, {called}")
            if message is None:
                raise
            self._fail(message)
            raise dist.DistBackendError(message) from error
        finally:
            self.log.end()
        return list(called.written)

    def _compare(self, number: int, called: str) -> None:
        """Raise DistBackendError unless all ranks call the same."""
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
        """No collective of this group comes to its end any more; PyTorch wraps the exception in many lines."""
        if not self._failure:
            print(f"{BACKEND}: {message}", file=sys.stderr, flush=True)
            self._failure = message
            self._peers.tell()
            with contextlib.suppress(RuntimeError):  # the store may have ended
                self._peers.linger()


def _adder(options: Options, wire: Wire, *, seconds: float) -> Adder:
    """Who adds up; ``seconds`` bound an all-reduce in RTL."""
    ring = options.collective is Collective.RING
    if options.run is Run.GOLDEN:
        return GoldenRing(options, wire) if ring else GoldenSwitch(wire)
    from fanin.torch.rtl import EmittedSwitch, RtlRing  # load what a simulator takes

    return RtlRing(options, wire, seconds=seconds) if ring else EmittedSwitch(options, wire)


def _check_size(name: str, tensor: torch.Tensor, values: int) -> None:
    """Raise ValueError unless a tensor has as many values as the others of its collective ask for."""
    if tensor.numel() != values:
        raise ValueError(f"the {name} must have {values:,} values, not {tensor.numel():,}")


def _name(op: ReduceOp) -> str:
    """``sum`` and so on; a ReduceOp equals a member of its class, but is none."""
    return next((name.lower() for name in _OPERATIONS if op == getattr(ReduceOp, name)), "another reduction")


def _given(opts: Any) -> tuple[Any, ...]:
    """Options as an argument, where there are any: gloo has defaults, but takes no None."""
    return () if opts is None else (opts,)


def _view(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The tensor's memory: what is written there, autograd does not see, as with gloo."""
    view: npt.NDArray[Any] = tensor.detach().numpy()
    return view


def _values(tensor: torch.Tensor) -> Float32:
    return np.ascontiguousarray(_view(tensor)).reshape(-1)


def _put(values: Float32, tensor: torch.Tensor) -> None:
    view = _view(tensor)
    view[...] = values.reshape(view.shape)
