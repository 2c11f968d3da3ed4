"""Data path of an update: computes a new row from w and a gradient, for memory and for the NIC."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus import axi_reader, axi_writer
from fanin.hdl.bus.axi4 import MAX_BURST, AXI4ReadSignature, AXI4WriteSignature, Resp
from fanin.hdl.bus.axi_reader import AxiReader
from fanin.hdl.bus.axi_writer import AxiWriter
from fanin.hdl.param_server.read_gate import ReadGate
from fanin.hdl.param_server.row import RowMaker, row_word_layout, tail_words
from fanin.hdl.param_server.shapes import FLOAT_BITS, order_layout, settings_layout
from fanin.hdl.param_server.update import UpdateLanes
from fanin.hdl.rdma.queue_pair import index_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fork import StreamFork
from fanin.rdma.facts import RdmaConfig

BURST = 16  # longest burst to memory, in words


class UpdatePath(wiring.Component):
    """Path that reads w and a gradient, makes the new row, writes it to memory and streams it to the NIC.

    Members
    -------
    ``settings`` : In, :func:`~fanin.hdl.param_server.shapes.settings_layout`
        Sizes and step.
    ``start`` : In, 1
        Pulse: w is in row 0. Allowed only while not ``busy``.
    ``clear`` : In, stream of a worker's index, always ready
        Set this worker's LGVnum to 0.
    ``w``, ``gradient`` : In, streams of AxiReader's commands
        Commands to read w and to read the gradient. An update consists of one command on each of ``w``,
        ``gradient``, ``write`` and ``order``.
    ``write`` : In, stream of AxiWriter's commands
        Command to write the row.
    ``order`` : In, stream of :func:`~fanin.hdl.param_server.shapes.order_layout`
        Command to make the row.
    ``rows_read``, ``rows_write``, ``table`` : Out, AXI4 ports
        Reads of w in the newest row, writes of the new row, reads of gradients.
    ``words`` : Out, stream of :func:`~fanin.hdl.param_server.row.row_word_layout`
        Words of the row as they are made.
    ``landed`` : Out, range(257)
        Number of additional words of the rows, in order, that are now in memory.
    ``made`` : Out, 1
        Pulse: a word of a row was made.
    ``busy`` : Out, 1
        A command of a reader or of the writer is not complete.
    ``error`` : Out, 1
        Pulse: memory answered with an error.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Data and address width.

    Latency
    -------
    From words of w and gradient to words of the row: 17 cycles; one word a cycle, across rows. Reads and writes
    add the latency of ``AxiReader`` and ``AxiWriter``.

    Source
    ------
    docs/systems/param-server-hardware.md, "Update and push in one pass".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        axi = {"data_width": config.width, "address_width": config.address_width}
        read = stream.Signature(axi_reader.command_layout(config.address_width))
        super().__init__(
            {
                "settings": In(settings_layout(config)),
                "start": In(1),
                "clear": In(stream.Signature(index_bits(config), always_ready=True)),
                "w": In(read),
                "gradient": In(read),
                "write": In(stream.Signature(axi_writer.command_layout(config.address_width))),
                "order": In(stream.Signature(order_layout(config))),
                "rows_read": Out(AXI4ReadSignature(**axi)),
                "rows_write": Out(AXI4WriteSignature(**axi)),
                "table": Out(AXI4ReadSignature(**axi)),
                "words": Out(stream.Signature(row_word_layout(config.width))),
                "landed": Out(range(MAX_BURST + 1)),
                "made": Out(1),
                "busy": Out(1),
                "error": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect readers, lanes, row maker and writer in series.

        The gate delays each read of w until the previous update has written those words.
        """
        m = Module()
        config, settings = self.config, self.settings
        axi = {"data_width": config.width, "address_width": config.address_width, "burst": BURST}
        m.submodules.w_reader = w = AxiReader(**axi)
        m.submodules.gradient_reader = gradient = AxiReader(**axi)
        m.submodules.writer = writer = AxiWriter(**axi)
        m.submodules.gate = gate = ReadGate(config=config)
        m.submodules.lanes = lanes = UpdateLanes(lanes=config.width // FLOAT_BITS)
        m.submodules.maker = maker = RowMaker(config=config)
        m.submodules.fork = fork = StreamFork(shape=maker.o.payload.shape())
        to_memory, to_nic = fork.o
        for source, sink in (
            (flipped(self.w), w.command),
            (flipped(self.gradient), gradient.command),
            (flipped(self.write), writer.command),
            (flipped(self.clear), maker.clear),
            (flipped(self.order), maker.order),
            (w.axi, gate.reader),
            (gate.axi, flipped(self.rows_read)),
            (gradient.axi, flipped(self.table)),
            (w.o, lanes.w),
            (gradient.o, lanes.gradient),
            (lanes.o, maker.updated),
            (maker.o, fork.i),
            (to_nic, flipped(self.words)),
            (writer.axi, flipped(self.rows_write)),
        ):
            connect_typed(m, source, sink)
        m.d.comb += [
            writer.i.valid.eq(to_memory.valid),
            writer.i.payload.data.eq(to_memory.payload.data),
            writer.i.payload.strobe.eq(-1),
            to_memory.ready.eq(writer.i.ready),
            lanes.step.eq(settings.step),
            maker.workers.eq(settings.workers),
            maker.words.eq(settings.words),
            gate.start.eq(self.start),
            gate.words.eq(settings.words),
            gate.landed.eq(writer.landed),
            self.landed.eq(writer.landed),
            self.made.eq(fork.i.valid & fork.i.ready),
            self.busy.eq(w.busy | gradient.busy | writer.busy),
        ]
        m.d.sync += [
            gate.tail.eq(tail_words(settings.workers, width=config.width)),
            self.error.eq(
                (self.rows_read.rvalid & (self.rows_read.rresp != Resp.OKAY))
                | (self.table.rvalid & (self.table.rresp != Resp.OKAY))
                | (self.rows_write.bvalid & (self.rows_write.bresp != Resp.OKAY))
            ),
        ]
        return m
