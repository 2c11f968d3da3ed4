"""The parameter server: it finds gradients in memory, updates the model, and pushes it back, beside a NIC."""
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

_STREAM_WORDS = 64  # that a row may be ahead of the NIC
_POLLS = 8  # cycles in which the scanner may still begin to poll a worker that was excluded


class ServerEvents(data.Struct):
    """What happened, a pulse each, for counters and measurement."""

    updates: 1  #: a gradient was taken, an update begins
    made: 1  #: a word of a row was made
    pushes: 1  #: a row was posted
    completed: 1  #: and the worker has it
    failed: 1  #: or its queue pair has ended
    let_go: 1  #: the rest of a row went by way of memory alone
    memory_errors: 1  #: a response of memory was an error; those of a cycle count once


class ParamServer(wiring.Component):
    """Apply the workers' gradients as they come, and push the model back to the worker of each.

    With the setting ``scan`` it is pushed after each scan of the workers that has found some, to those whose
    gradients it has; with ``broadcast`` to all workers, after a gradient or a scan; with ``barrier`` to all
    after a gradient of each (Sync-DSGD).

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Stable from before ``worker`` and ``start`` on.
    ``worker`` : In, stream of :func:`~fanin.hdl.param_server.shapes.worker_layout`
        Every worker, before ``start``: its next gradient is 1.
        Or, while a job runs, one that ``readmits``: a worker that is ``drained`` is taken back.
    ``exclude`` : In, stream of a worker's index, always ready
        The worker is excluded, as if a push to it had failed.
    ``start`` : In, 1
        Pulse: w is in row 0, and its version is 0; only while not ``busy``.
    ``enable`` : In, 1
        Gradients are taken; what was begun is ended without it.
    ``post`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``completion`` : In, stream of :func:`~fanin.hdl.rdma.queue_pair.completion_layout`
        Of the NIC.
    ``nic`` : In, AXI4 read port
        The NIC's.
    ``memory`` : Out, AXI4 read port
        What the NIC reads of memory.
    ``rows_read``, ``rows_write`` : Out, AXI4 ports
        w, and the rows that are made.
    ``table`` : Out, AXI4 read port
        The gradients.
    ``scan`` : Out, AXI4 read port
        Their trailers. All ports are to the same memory, which shows what is written in the order of writing.
    ``version`` : Out, 32
        Updates begun since ``start``.
    ``busy`` : Out, 1
        An update or a push is not complete, or a read under way.
    ``exhausted`` : Out, 1
        There is no version left: nothing is taken any more.
    ``excluded`` : Out, one bit for each worker
        A push to it has failed, or ``exclude`` named it: its gradients are left out from then on, until it is
        taken back.
    ``drained`` : Out, one bit for each worker
        It is excluded, and nothing of it is left: no gradient of it is read or in a round that goes on, and no
        push to it is in flight. High until it is taken back.
    ``staleness``, ``stalest`` : Out, 64 and 32
        Sum over the updates, and largest of them: updates by others that a gradient's model had not had.
    ``events`` : Out, ServerEvents

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``patience`` : int, cycles
        Without a read by the NIC, until the rest of a row is let go.

    Latency
    -------
    A word of a row every cycle, across rows that are longer than a write and a read of memory take together and
    60 words; shorter ones take that time each.

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
        """The scanner finds gradients, the control orders their updates, the path carries them out.

        Rows leave the path twice: to memory, and word by word to the streamed reads, from which the NIC reads
        them while they are made. Pushes tell the streamed reads of each row, and post it to the NIC.
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
        rounds = Signal()  # rows are pushed from memory, the last one of each round
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
        """Say which excluded workers have nothing left: what of them has ended does not begin again."""
        recent = Signal(_POLLS)  # a one at the cycles since a worker was excluded
        settled = Signal()
        m.d.sync += [
            recent.eq(recent << 1 | pushes.failed | self.exclude.valid),
            settled.eq(~(pushes.draining | recent.any())),
            self.drained.eq(
                pushes.excluded
                & (self.drained | scanner.idle & ~control.joined & settled.replicate(len(self.drained)))
            ),
        ]
