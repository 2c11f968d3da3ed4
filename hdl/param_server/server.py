"""Parameter server beside a NIC: finds gradients in memory, updates the model and pushes it to workers."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.param_server.pushes import Pushes
from fanin.hdl.param_server.scanner import Scanner
from fanin.hdl.param_server.shapes import VERSION_BITS, settings_layout, worker_layout
from fanin.hdl.param_server.streamed_reads import StreamedReads
from fanin.hdl.param_server.update_control import UpdateControl
from fanin.hdl.param_server.update_path import UpdatePath
from fanin.hdl.rdma.queue_pair import completion_layout, index_bits, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.rdma.facts import RdmaConfig

_STREAM_WORDS = 64  # words of a row that may wait for the NIC
_POLLS = 8  # cycles after an exclusion in which the scanner may still poll that worker


class ServerEvents(data.Struct):
    """Events of the server, one pulse each, for counters and measurement."""

    updates: 1  #: a gradient was taken, and its update begins
    made: 1  #: a word of a row was made
    pushes: 1  #: a row was posted to a worker
    completed: 1  #: a posted row was delivered
    failed: 1  #: a posted row was not delivered, because the queue pair has ended
    let_go: 1  #: the NIC reads the rest of a row from memory
    memory_errors: 1  #: memory answered with an error; several errors of one cycle count once


class ParamServer(wiring.Component):
    """Server that applies gradients as they arrive, and pushes the new model to each gradient's worker.

    Settings select other targets of the pushes. ``scan``: push after each scan that found gradients, to their
    workers. ``broadcast``: push to all workers, after a gradient or a scan. ``barrier``: push to all workers
    after one gradient of each (Sync-DSGD).

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Sizes and mode; stable from before ``worker`` and ``start`` on.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        Every worker, before ``start``; its next gradient has version 1. With ``readmits``, while a job runs: a
        ``drained`` worker is readmitted.
    ``exclude`` : In, stream of a worker's index, always ready
        Exclude this worker, as if a push to it had failed.
    ``start`` : In, 1
        Pulse: w is in row 0 with version 0. Allowed only while not ``busy``.
    ``enable`` : In, 1
        Take gradients. An update that has begun finishes without ``enable``.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Writes for the NIC.
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Completions of the NIC.
    ``nic`` : In, AXI4 read port
        Reads of the NIC.
    ``memory`` : Out, AXI4 read port
        Reads of the NIC that go to memory. All memory ports lead to one memory, which makes writes visible in
        their order.
    ``rows_read``, ``rows_write`` : Out, AXI4 ports
        Reads of w, and writes of new rows.
    ``table`` : Out, AXI4 read port
        Reads of gradients.
    ``scan`` : Out, AXI4 read port
        Reads of the gradients' trailers.
    ``version`` : Out, 32
        Updates begun since ``start``.
    ``busy`` : Out, 1
        An update, a push or a read is not complete.
    ``exhausted`` : Out, 1
        The last version is reached: no gradient is taken any more.
    ``excluded`` : Out, one bit for each worker
        A push to the worker has failed, or ``exclude`` named it. Its gradients are ignored until it is
        readmitted.
    ``drained`` : Out, one bit for each worker
        The worker is excluded, none of its gradients is being read or belongs to an unfinished round, and no
        push to it is in flight. High until it is readmitted.
    ``staleness``, ``stalest`` : Out, 64 and 32
        Sum and maximum of the staleness of all updates. Staleness of a gradient: updates by other workers that
        its model did not include.
    ``events`` : Out, ServerEvents
        Pulses for counters and measurement.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.
    ``patience`` : int
        Cycles without a read by the NIC before the rest of a row is let go. Default 4096.

    Latency
    -------
    One word of a row every cycle, if a row is longer than 60 words plus the time of a write and a read of
    memory. Shorter rows take that time each.

    Source
    ------
    RDMA-wild, section 4.2, algorithm 1; docs/systems/param-server-hardware.md.
    """

    def __init__(self, *, config: RdmaConfig, patience: int = 4096):
        self.config = config
        self.patience = patience
        axi = {"data_width": config.width, "address_width": config.address_width}
        read = AXI4ReadSignature(**axi)
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "worker": In(stream.Signature(worker_layout(config))),
                "exclude": In(stream.Signature(index_bits(config), always_ready=True)),
                "start": In(1),
                "enable": In(1),
                "post": Out(stream.Signature(write_layout(config))),
                "completion": In(stream.Signature(completion_layout(config))),
                "nic": In(read),
                "memory": Out(read),
                "rows_read": Out(read),
                "rows_write": Out(AXI4WriteSignature(**axi)),
                "table": Out(read),
                "scan": Out(read),
                "version": Out(VERSION_BITS),
                "busy": Out(1),
                "exhausted": Out(1),
                "excluded": Out(config.queue_pairs),
                "drained": Out(config.queue_pairs),
                "staleness": Out(64),
                "stalest": Out(VERSION_BITS),
                "events": Out(ServerEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect scanner (finds gradients), control (orders updates), path (computes them) and pushes.

        Each row leaves the path twice: to memory, and word by word to the streamed reads, from which the NIC
        reads it while it is made. The pushes announce each row to the streamed reads and post it to the NIC.
        """
        m = Module()
        config, settings = self.config, self.settings
        m.submodules.scanner = scanner = Scanner(config=config)
        m.submodules.control = control = UpdateControl(config=config)
        m.submodules.path = path = UpdatePath(config=config)
        m.submodules.pushes = self.pushes = pushes = Pushes(config=config)
        m.submodules.streamed = streamed = StreamedReads(
            config=config, depth=_STREAM_WORDS, patience=self.patience
        )
        for source, sink in (
            (scanner.o, control.found),
            (control.place, scanner.place),
            (control.clear, path.clear),
            (flipped(self.worker), control.worker),
            *((getattr(control, name), getattr(path, name)) for name in ("w", "gradient", "write", "order")),
            (control.push, pushes.push),
            (flipped(self.exclude), pushes.exclude),
            (pushes.row, streamed.row),
            (path.words, streamed.i),
            (pushes.post, flipped(self.post)),
            (flipped(self.completion), pushes.completion),
            (flipped(self.nic), streamed.nic),
            (streamed.memory, flipped(self.memory)),
            (path.rows_read, flipped(self.rows_read)),
            (path.rows_write, flipped(self.rows_write)),
            (path.table, flipped(self.table)),
            (scanner.axi, flipped(self.scan)),
        ):
            connect_typed(m, source, sink)
        rounds = Signal()  # only the last row of each round is pushed, from memory
        m.d.sync += rounds.eq(settings.barrier | settings.broadcast | settings.scan)
        m.d.comb += [
            scanner.enable.eq(self.enable & ~self.exhausted),
            scanner.workers.eq(settings.workers),
            scanner.excluded.eq(pushes.excluded),
            scanner.scan.eq(settings.scan),
            scanner.looks.eq(control.looks),
            scanner.again.eq(control.again),
            control.settings.eq(settings),
            control.enable.eq(self.enable),
            control.occupied.eq(pushes.occupied),
            path.settings.eq(settings),
            streamed.landed.eq(path.landed),
            pushes.landed.eq(path.landed),
            *(part.start.eq(self.start) for part in (control, path, pushes)),
            *(getattr(pushes, name).eq(settings[name]) for name in ("broadcast", "workers", "row_bytes")),
            pushes.rounds.eq(rounds),
            streamed.bypass.eq(rounds),
            pushes.worker.valid.eq(self.worker.valid & self.worker.ready & ~self.worker.payload.readmits),
            pushes.worker.payload.eq(self.worker.payload),
            *(
                getattr(self, name).eq(getattr(control, name))
                for name in ("version", "exhausted", "staleness", "stalest")
            ),
            self.excluded.eq(pushes.excluded),
            self.events.updates.eq(control.updated),
            self.events.made.eq(path.made),
            self.events.pushes.eq(pushes.pushed),
            self.events.completed.eq(pushes.completed),
            self.events.failed.eq(pushes.failed),
            self.events.let_go.eq(streamed.let_go),
            self.events.memory_errors.eq(path.error | scanner.error),
        ]
        m.d.sync += self.busy.eq(~control.idle | scanner.busy | pushes.busy | path.busy)
        self._drain(m, scanner, control, pushes)
        return m

    def _drain(self, m: Module, scanner: Scanner, control: UpdateControl, pushes: Pushes) -> None:
        """Report in ``drained`` the excluded workers with no activity left; excluded workers start none."""
        recent = Signal(_POLLS)  # shift register: a 1 for each cycle with an exclusion
        pushes_ended = Signal()
        m.d.sync += [
            recent.eq(recent << 1 | pushes.failed | self.exclude.valid),
            pushes_ended.eq(~(pushes.draining | recent.any())),
            self.drained.eq(
                pushes.excluded
                & (self.drained | scanner.idle & ~control.joined & pushes_ended.replicate(len(self.drained)))
            ),
        ]
