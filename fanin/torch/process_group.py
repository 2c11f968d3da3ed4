"""PyTorch process group ``fanin``: the NICs run collectives of types that they add, gloo all others
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
from fanin.codec.golden import half
from fanin.torch import BACKEND
from fanin.torch.adders import Adder, Float32, GoldenRing, GoldenSwitch
from fanin.torch.halves import FORMATS, HalfFormat, UInt16, codes_of, codes_view, common_format
from fanin.torch.options import Collective, Options, Run
from fanin.torch.peers import Peers, peer_text
from fanin.torch.timing import Log, keep_log
from fanin.torch.wire import Wire
from fanin.torch.work import CallQueue, Work

_SIGNATURE_BYTES = 120  # length of the text by which ranks compare their calls
_END_SECONDS = 3.0  # wait for a collective in flight when the process ends
_OPERATION_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class _CollectiveCall:
    """A rank's call of a collective. ``str`` is its signature, which must be the same on all ranks.

    - ``name``: name of the collective, such as ``all_reduce``.
    - ``inputs``: tensors that the rank contributes.
    - ``detail``: reduction, root or sizes, for the signature.
    - ``outputs``: tensors that the collective writes.
    """

    name: str
    inputs: Tensors = ()
    detail: str = ""
    outputs: Tensors = ()

    @property
    def size(self) -> int:
        """Bytes of the rank's inputs."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.inputs)

    def __str__(self) -> str:
        count = sum(tensor.numel() for tensor in self.inputs)
        types = ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in self.inputs}))
        return " ".join(filter(None, (self.name, f"of {count:,} {types}" if self.inputs else "", self.detail)))


class FaninGroup(ProcessGroup):
    """Process group whose ranks each have a NIC.

    A thread runs collectives in the order of calls, so that a call returns at once and DistributedDataParallel
    can continue to compute. Each collective begins with a comparison of the ranks' calls. PyTorch passes all
    methods that are not overridden here to gloo. Raises InputError, DistBackendError.
    """

    def __init__(self, opts: Any, options: Options):
        rank, size = opts.group_rank, opts.group_size
        super().__init__(rank, size)
        if size > options.max_ranks:
            raise dist.DistBackendError(
                f"a {options.collective} has at most {options.max_ranks} ranks, not {size}"
            )
        self.options = options

        def store(prefix: str) -> dist.Store:
            return dist.PrefixStore(prefix, opts.store)

        global_ranks = list(opts.global_ranks_in_group) or list(range(size))
        self._peers = Peers(store("peers"), rank=rank, global_ranks=global_ranks, timeout=opts.timeout)
        self._peers.agree(f"world size {size}, {options}")
        self._gloo = dist.ProcessGroupGloo(store("gloo"), rank, size, timeout=opts.timeout)
        self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self._gloo)
        self._wire = Wire(store("wire"), rank, size, opts.timeout)
        self._adder = _adder(options, self._wire, seconds=opts.timeout.total_seconds())
        self.log = Log(options, size)
        self._report: Path | None = None
        if not opts.global_ranks_in_group:  # the group of the whole job
            keep_log(self.log)
            self._report = None if rank else options.report_file()
        self._calls = CallQueue()
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
            try:
                self._report.write_text(f"{self.log.report()}\n")
            except OSError as error:  # the script goes on: it may save its model next
                print_note(f"{BACKEND}: report={self._report}: cannot be written: {error.strerror}")

    # ---- collectives, with the names and arguments of ProcessGroup ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        """Compute sums and means by the NICs, other reductions by gloo."""
        opts = opts or dist.AllreduceOptions()
        op = opts.reduceOp

        def add() -> None:
            for tensor in tensors:
                _write(self._reduce("all_reduce", [tensor], op), tensor)

        run_on_nics = add if self._can_add(tensors, op) else None
        call = _CollectiveCall("all_reduce", tensors, _operation_name(op), outputs=tensors)
        return self._queue(call, run_on_nics, lambda: self._gloo.allreduce(tensors, opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Reduce each tensor as ``allreduce`` does."""
        allreduce_opts = dist.AllreduceOptions()
        allreduce_opts.reduceOp = opts.reduceOp if opts else allreduce_opts.reduceOp
        return self.allreduce(tensors, allreduce_opts)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        """Compute sums and means by the NICs, as all-reduces of which each rank keeps its part."""
        opts = opts or dist.ReduceScatterOptions()
        op = opts.reduceOp
        for output, tensors in zip(outputs, inputs, strict=True):
            self._check_number("inputs", tensors)
            _check_size("output", output, tensors[self.rank()].numel())
        all_inputs = [tensor for tensors in inputs for tensor in tensors]

        def add() -> None:
            for output, tensors in zip(outputs, inputs, strict=True):
                offset = sum(tensor.numel() for tensor in tensors[: self.rank()])
                total = self._reduce("reduce_scatter", tensors, op)
                _write(total[offset : offset + output.numel()], output)

        run_on_nics = add if self._can_add([*all_inputs, *outputs], op) else None
        sizes = [f"{tensor.numel():,}" for tensor in all_inputs]
        detail = _operation_name(op)
        if len(set(sizes)) > 1:
            detail += f", parts of {', '.join(sizes)}"
        call = _CollectiveCall("reduce_scatter", all_inputs, detail, outputs=outputs)
        return self._queue(call, run_on_nics, lambda: self._gloo.reduce_scatter(outputs, inputs, opts))

    def _reduce_scatter_base(self, output: torch.Tensor, contribution: torch.Tensor, opts: Any = None) -> Work:
        """Implement ``reduce_scatter_tensor``, as ``reduce_scatter``."""
        opts = opts or dist.ReduceScatterOptions()
        op = opts.reduceOp
        _check_size("input", contribution, self.size() * output.numel())

        def add() -> None:
            offset = self.rank() * output.numel()
            total = self._reduce("reduce_scatter", [contribution], op)
            _write(total[offset : offset + output.numel()], output)

        run_on_nics = add if self._can_add([contribution, output], op) else None
        call = _CollectiveCall("reduce_scatter", [contribution], _operation_name(op), outputs=[output])
        return self._queue(
            call, run_on_nics, lambda: self._gloo._reduce_scatter_base(output, contribution, opts)
        )

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Broadcast by the NICs: all ranks except the root add zeros."""
        root = opts.rootRank
        if root not in range(self.size()):
            raise ValueError(f"the root must be a rank of the group, 0 to {self.size() - 1}, not {root}")

        def add_zeros() -> None:
            for tensor in tensors:
                values = _values(tensor)
                addend = values if root == self.rank() else np.zeros_like(values)
                _write(self._move("broadcast", values.size, addend), tensor)

        run_on_nics = add_zeros if self._can_move(tensors) else None
        detail = f"from rank {self._peers.global_ranks[root]}"
        call = _CollectiveCall("broadcast", tensors, detail, outputs=tensors)
        return self._queue(call, run_on_nics, lambda: self._gloo.broadcast(tensors, opts))

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Gather by the NICs: each rank adds zeros in the places of the others' values."""
        for contribution, tensors in zip(inputs, outputs, strict=True):
            self._check_number("outputs", tensors)
            for output in tensors:
                _check_size("output", output, contribution.numel())
        all_outputs = [tensor for tensors in outputs for tensor in tensors]

        def gather() -> None:
            for contribution, tensors in zip(inputs, outputs, strict=True):
                for values, tensor in zip(self._gather(_values(contribution)), tensors, strict=True):
                    _write(values, tensor)

        run_on_nics = gather if self._can_move([*inputs, *all_outputs]) else None
        call = _CollectiveCall("all_gather", inputs, outputs=all_outputs)
        return self._queue(
            call, run_on_nics, lambda: self._gloo.allgather(outputs, inputs, *_gloo_arguments(opts))
        )

    def _allgather_base(self, output: torch.Tensor, contribution: torch.Tensor, opts: Any = None) -> Work:
        """Implement ``all_gather_into_tensor``, as ``allgather``."""
        _check_size("output", output, self.size() * contribution.numel())

        def gather() -> None:
            _write(self._gather(_values(contribution)), output)

        run_on_nics = gather if self._can_move([contribution, output]) else None
        call = _CollectiveCall("all_gather", [contribution], outputs=[output])
        return self._queue(
            call, run_on_nics, lambda: self._gloo._allgather_base(output, contribution, *_gloo_arguments(opts))
        )

    # Names of the two methods above in PyTorch 2.13.
    reduce_scatter_single, all_gather_single = _reduce_scatter_base, _allgather_base

    def barrier(self, opts: Any = None) -> Work:
        """Synchronise by the NICs: add a zero from each rank."""

        def add_zero() -> None:
            self._sum("barrier", 0, np.zeros(1, np.float32))

        run_on_nics = add_zero if self.size() > 1 else None
        return self._queue(
            _CollectiveCall("barrier"), run_on_nics, lambda: self._gloo.barrier(*_gloo_arguments(opts))
        )

    def _check_number(self, name: str, tensors: Tensors) -> None:
        """Raise ValueError unless there is a tensor per rank."""
        if len(tensors) != self.size():
            raise ValueError(f"the {name} must be {self.size()} tensors, one for each rank, not {len(tensors)}")

    # ---- work of the NICs ----

    def _can_add(self, tensors: Tensors, op: ReduceOp) -> bool:
        if _operation_name(op) not in ("sum", "avg"):
            return False
        is_half = self.options.adds_halves and common_format(tensors) is not None
        return self._supports(tensors, torch.float32) or (is_half and self._supports(tensors, *FORMATS))

    def _can_move(self, tensors: Tensors) -> bool:
        """Return whether the NICs can move these tensors unchanged, which excludes a lossy codec."""
        return self.options.codec is None and self._supports(tensors, torch.float32)

    def _supports(self, tensors: Tensors, *types: torch.dtype) -> bool:
        """Return whether the NICs accept these tensors: of one of ``types``, strided, not empty, in a group of
        several.
        """
        return self.size() > 1 and all(
            tensor.dtype in types and tensor.layout == torch.strided and tensor.numel() for tensor in tensors
        )

    def _sum(self, name: str, count: int, vector: Float32) -> Float32:
        """Return the sum of the ranks' vectors, for a collective of ``count`` values."""
        total = self._adder.all_reduce(vector)
        self.log.add_nics(name, count, vector, total.seconds)
        return total.values

    def _reduce(self, name: str, tensors: Tensors, op: ReduceOp) -> Float32 | UInt16:
        """Return the ranks' sum or mean of the tensors, one after the other, computed by the NICs.

        The result has the codes of values of 16 bits.
        """
        divisor = self.size() if op == ReduceOp.AVG else 1
        if form := common_format(tensors):
            return self._reduce_halves(
                name, np.concatenate([codes_of(each) for each in tensors]), form, divisor
            )
        values = np.concatenate([_values(tensor) for tensor in tensors])
        return self._sum(name, values.size, values) / np.float32(divisor)

    def _reduce_halves(self, name: str, codes: UInt16, form: HalfFormat, divisor: int) -> UInt16:
        """Return the codes of the ranks' sum, rounded by the NICs, or of the mean, divided and rounded here."""
        total = self._adder.all_reduce(codes, form)
        self.log.add_nics(name, codes.size, half.decompress(codes, form), total.seconds, tensor=form)
        if divisor == 1:
            return total.values
        return half.compress(half.decompress(total.values, form) / np.float32(divisor), form)

    def _move(self, name: str, count: int, values: Float32) -> Float32:
        """Return the values of the only rank whose ``values`` are not all zero, bit for bit.

        Each value is sent as two integers of 16 bits, which adding zeros does not change. Adding floats would
        change −0, subnormals and NaNs.
        """
        halves = values.view(np.uint16).astype(np.float32)
        return self._sum(name, count, halves).astype(np.uint16).view(np.float32)

    def _gather(self, values: Float32) -> Float32:
        """Return the values of all ranks, a row per rank."""
        rows = np.zeros((self.size(), values.size), np.float32)
        rows[self.rank()] = values
        return self._move("all_gather", values.size, rows.reshape(-1)).reshape(rows.shape)

    # ---- execution of a collective ----

    def _queue(
        self,
        call: _CollectiveCall,
        run_on_nics: Callable[[], None] | None,
        run_on_gloo: Callable[[], dist.Work],
    ) -> Work:
        """Queue a collective: ``run_on_nics``, or ``run_on_gloo`` if ``run_on_nics`` is None."""
        self.log.begin()
        try:
            return self._calls.call(lambda: self._run(call, run_on_nics, run_on_gloo))
        except dist.DistBackendError:  # the group has been destroyed
            self.log.end()
            raise

    def _run(
        self,
        call: _CollectiveCall,
        run_on_nics: Callable[[], None] | None,
        run_on_gloo: Callable[[], dist.Work],
    ) -> list[torch.Tensor]:
        number = self._peers.begin()
        try:
            if self._failure:
                raise dist.DistBackendError(self._failure)
            self._compare(number, str(call))
            if run_on_nics:
                run_on_nics()
            else:
                start = time.monotonic()
                run_on_gloo().wait()
                self.log.add_gloo(call.size, time.monotonic() - start)
        except dist.DistBackendError as error:
            self._fail(str(error))
            raise
        except RuntimeError as error:  # from gloo
            message = self._peers.blame(f"collective {number}, {call}")
            if message is None:
                raise
            self._fail(message)
            raise dist.DistBackendError(message) from error
        finally:
            self.log.end()
        return list(call.outputs)

    def _compare(self, number: int, call: str) -> None:
        """Raise DistBackendError unless all ranks make the same call."""
        if self.size() == 1:
            return
        padded = np.zeros(_SIGNATURE_BYTES, np.uint8)
        encoded = call.encode()[:_SIGNATURE_BYTES]
        padded[: len(encoded)] = np.frombuffer(encoded, np.uint8)
        signatures = [peer_text(row.tobytes().rstrip(b"\0")) for row in self._wire.all_gather(padded)]
        for rank, signature in enumerate(signatures):
            if signature != signatures[0]:
                ranks = self._peers.global_ranks
                raise dist.DistBackendError(
                    f"collective {number}: rank {ranks[0]} calls {signatures[0]}, "
                    f"rank {ranks[rank]} {signature}: "
                    "all ranks must call the same"
                )

    def _fail(self, message: str) -> None:
        """Make all later collectives of this group fail.

        Print the message once, in one line: PyTorch wraps the exception in many lines.
        """
        if not self._failure:
            print_note(f"{BACKEND}: {message}")
            self._failure = message
            self._peers.mark_informed()
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


def _operation_name(op: ReduceOp) -> str:
    """Return ``sum`` and so on; a ReduceOp equals a member of its class, but is not one."""
    return next(
        (name.lower() for name in _OPERATION_NAMES if op == getattr(ReduceOp, name)), "another reduction"
    )


def _gloo_arguments(opts: Any) -> tuple[Any, ...]:
    """Return options as an argument list; empty for None, which gloo does not accept."""
    return () if opts is None else (opts,)


def _view(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return a view of the tensor's memory; autograd does not see writes to it, as with gloo."""
    view: npt.NDArray[Any] = tensor.detach().numpy()
    return view


def _values(tensor: torch.Tensor) -> Float32:
    return np.ascontiguousarray(_view(tensor)).reshape(-1)


def _write(values: Float32 | UInt16, tensor: torch.Tensor) -> None:
    """Copy values, or codes of 16 bits, into a tensor of the same number of values and any shape."""
    view = codes_view(tensor) if tensor.dtype in FORMATS else _view(tensor)
    view[...] = values.reshape(view.shape)
