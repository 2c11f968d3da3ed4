"""Store: the only component that accesses a device's memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.port import BEAT_BITS, BEAT_WORDS, BURST, WRITE_DEPTH, read_depth
from fanin.cnn.memory import (
    ADDRESS_BITS,
    BEAT_BYTES,
    Frames,
    StoreConfig,
    beats,
)
from fanin.hdl.bus.axi4 import join_memory, memory_signature
from fanin.hdl.layers.burst_requests import BEAT_ADDRESS_BITS
from fanin.hdl.layers.gearbox import Gearbox
from fanin.hdl.layers.interface import FRAME_BITS, LayerControl, Mode, word_stream
from fanin.hdl.layers.memory_channels import ReadChannel, WriteChannel
from fanin.hdl.layers.memory_ports import ReadPort, WritePort
from fanin.hdl.layers.parameter_image import ParameterCollector, ParameterLoader
from fanin.hdl.layers.parameter_memory import parameter_memory
from fanin.hdl.stream.connect import connect_bits, connect_typed
from fanin.hdl.stream.credits import Credits


def numbered(streams: Iterable[Any]) -> wiring.Signature:
    """Return a signature of streams of different widths as one member: ``stream0``, ``stream1``, …"""
    return wiring.Signature({f"stream{number}": Out(signature) for number, signature in enumerate(streams)})


def streams(interface: Any) -> list[Any]:
    """Return the streams of a :func:`numbered` member, in their order."""
    return [getattr(interface, f"stream{number}") for number in range(len(interface.signature.members))]


class Store(wiring.Component):
    """Mover of all data between the layers and memory, through one AXI4 port of 512 bits.

    The store reads a job's images and labels and writes its results, ``frames`` of each. It writes a layer's
    saved maps to the layer's ring of frames, and reads them back for the replay. A saved frame is read only
    after memory has acknowledged all of it. In the modes LOAD and DUMP the store moves each layer's words, in
    order, between the parameter image and the layer.

    A layer with parameters in memory requests each pass over them. A velocity burst is read only after the
    previous pass's write to it is acknowledged, and is never written before it is read.

    Channels take turns at the port, one burst of up to 16 beats each. A channel requests a read burst only if
    it has room for the data, and a write burst only if it holds all data. So no channel blocks another, and no
    burst stalls.

    Members
    -------
    ``control`` : In, LayerControl
        Mode, frames and start of the job.
    ``stop`` : In(1)
        Begin no burst at the port. Bursts that have begun finish.
    ``quiet`` : Out(1)
        No burst is in flight. With ``stop`` high, the whole store may then be reset.
    ``bases`` : In, first beats in memory of ``parameters``, ``readers`` and ``writers``
        Stable during a job.
    ``readers`` : Out, stream0, stream1, …: of ``lanes`` words each
        Images and labels from memory.
    ``writers`` : In, stream0, stream1, …: of ``lanes`` words each
        Results to memory.
    ``save``, ``replay`` : In, Out, stream0, stream1, …: of ``lanes`` words each, one for each ring
        Maps to a ring, and back from the ring.
    ``spilled`` : In, stream0, stream1, …: ``parameter_memory`` of each layer with parameters in memory
        Passes over these parameters.
    ``load``, ``dump`` : Out, In, arrays of streams of one word, one for each section
        Words of the parameter image to and from each layer that has a section of it.
    ``done`` : Out(1)
        All results or dumped words of the job are in memory, and all loaded words have left the parameter
        image. Valid from the second cycle after ``start`` on.
    ``error`` : Out(1)
        Pulse: memory answered with an error.
    ``events`` : Out, struct of ``read`` and ``written``
        Pulses: a beat was read or written at the port.
    ``levels`` : Out, struct of ``ring0``, ``save0``, ``ring1``, …, of each ring; registered
        ``ring``: frames in memory, from the acknowledgement of a frame's last burst to the read of its last
        beat. ``save``: beats in the queue to memory.
    ``memory`` : Out, AXI4, 512 bits
        Memory of the device.

    Parameters
    ----------
    ``config`` : StoreConfig

    Latency
    -------
    9 cycles from ``start`` to the first ``arvalid``. The port moves a beat in at least 98 % of the cycles, in
    each direction, while memory answers within 100 cycles.

    Source
    ------
    docs/systems/cluster.md, "Store".
    """

    def __init__(self, *, config: StoreConfig):
        self.config = config
        rings = numbered(word_stream(ring.frames.lanes) for ring in config.rings)
        readers, writers = (
            numbered(word_stream(frames.lanes) for frames in part) for part in (config.readers, config.writers)
        )
        bases = {"parameters": BEAT_ADDRESS_BITS} | {
            name: data.ArrayLayout(BEAT_ADDRESS_BITS, len(part))
            for name, part in (("readers", config.readers), ("writers", config.writers))
        }
        spilled = [parameter_memory(kind.frames.lanes, gradient=kind.gradient) for kind in config.spilled]
        words, sections = stream.Signature(WORD_BITS), len(config.sections)
        levels: dict[str, Any] = {}
        for n, ring in enumerate(config.rings):
            levels |= {f"ring{n}": range(ring.capacity + 1), f"save{n}": range(WRITE_DEPTH + 1)}
        super().__init__(
            {
                "control": In(LayerControl),
                "stop": In(1),
                "quiet": Out(1),
                "bases": In(data.StructLayout(bases)),
                "readers": Out(readers),
                "writers": In(writers),
                "save": In(rings),
                "replay": Out(rings),
                "spilled": In(numbered(spilled)),
                "load": Out(words).array(sections),
                "dump": In(words).array(sections),
                "done": Out(1),
                "error": Out(1),
                "events": Out(data.StructLayout({"read": 1, "written": 1})),
                "levels": Out(data.StructLayout(levels)),
                "memory": Out(memory_signature(data_width=BEAT_BITS, address_width=ADDRESS_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a channel for each read and each written stream; the channels share a read and a write port."""
        m = Module()
        config, mode = self.config, self.control.mode
        two_way = len(config.rings) + bool(config.sections)  # data that have a channel in each direction
        read_passes = sum(2 + kind.gradient for kind in config.spilled)
        write_passes = 2 * len(config.spilled)
        m.submodules.read_port = read_port = ReadPort(count=max(1, len(config.readers) + two_way + read_passes))
        m.submodules.write_port = write_port = WritePort(
            count=max(1, len(config.writers) + two_way + write_passes)
        )
        m.d.comb += [read_port.stop.eq(self.stop), write_port.stop.eq(self.stop)]
        m.d.sync += self.quiet.eq(read_port.quiet & write_port.quiet)
        join_memory(m, read=read_port.axi, write=write_port.axi, memory=self.memory)
        frames = Signal(FRAME_BITS)  # frames of the job that pass through the layers
        m.d.comb += frames.eq(Mux((mode == Mode.EVALUATE) | (mode == Mode.TRAIN), self.control.frames, 0))
        pending = self._frames(m, read_port, write_port, frames)
        self._rings(m, read_port, write_port)
        self._spilled(m, read_port, write_port)
        if config.sections:
            pending += self._parameters(m, read_port, write_port)
        m.d.sync += [
            self.done.eq(~Cat(pending).any()),
            self.error.eq(read_port.error | write_port.error),
            self.events.read.eq(read_port.arrived.any()),
            self.events.written.eq(self.memory.wvalid & self.memory.wready),
        ]
        return m

    def _frames(self, m: Module, read_port: Any, write_port: Any, frames: Signal) -> list[Any]:
        """Move images, labels and results. Return whether frames of each result are still to be written."""
        pending = []
        for n, (kind, port) in enumerate(zip(self.config.readers, streams(self.readers), strict=True)):
            reader = self._reader(m, f"reader{n}", read_port, n, kind, port)
            m.d.comb += [reader.base.eq(self.bases.readers[n]), reader.frames.eq(frames)]
        for n, (kind, port) in enumerate(zip(self.config.writers, streams(self.writers), strict=True)):
            writer = self._writer(m, f"writer{n}", write_port, n, kind, port)
            m.d.comb += [writer.base.eq(self.bases.writers[n]), writer.frames.eq(frames)]
            pending.append(self._frames_pending(m, f"unwritten{n}", frames, write_port.landed[n]))
        return pending

    def _rings(self, m: Module, read_port: Any, write_port: Any) -> None:
        """Move saved maps: a frame is readable once acknowledged, and its place is free once it is read."""
        for n, ring in enumerate(self.config.rings):
            read, write = len(self.config.readers) + n, len(self.config.writers) + n
            save, replay = (streams(port)[n] for port in (self.save, self.replay))
            reader = self._reader(m, f"replay{n}", read_port, read, ring.frames, replay, wrap=ring.capacity)
            writer = self._writer(m, f"save{n}", write_port, write, ring.frames, save, wrap=ring.capacity)
            m.d.comb += [
                reader.base.eq(ring.address // BEAT_BYTES),
                writer.base.eq(ring.address // BEAT_BYTES),
                writer.frames.eq(ring.capacity),
                reader.frame.eq(write_port.landed[write]),
                writer.frame.eq(read_port.finished[read]),
                self.levels[f"save{n}"].eq(writer.level),
            ]
            self._count_frames(m, self.levels[f"ring{n}"], write_port.landed[write], read_port.finished[read])

    def _count_frames(self, m: Module, frames: Any, landed: Any, finished: Any) -> None:
        """Count the frames of a ring that are in memory."""
        with m.If(self.control.start):
            m.d.sync += frames.eq(0)
        with m.Elif(landed != finished):
            m.d.sync += frames.eq(Mux(landed, frames + 1, frames - 1))

    def _spilled(self, m: Module, read_port: Any, write_port: Any) -> None:
        """Move parameters in memory: each pass over weights or velocities is a frame at the same address.

        ``unread`` has a credit for each velocity burst in memory that may be read: a read takes it, and the
        acknowledgement of the burst's next write returns it.
        """
        config = self.config
        read, write = len(config.readers) + len(config.rings), len(config.writers) + len(config.rings)
        for n, (kind, port) in enumerate(zip(config.spilled, streams(self.spilled), strict=True)):
            m.submodules[f"unread{n}"] = unread = Credits(limit=kind.velocity_bursts, full=True)
            unsettled = []
            for name, address in ("weights", kind.weights), ("velocities", kind.velocities):
                unsettled.append(self._write_passes(m, n, write_port, write, name, address))
                write += 1
            m.d.comb += [
                port.settled.eq(~Cat(unsettled).any()),
                unread.give.eq(write_port.acknowledged[write - 1]),
            ]
            passes = [("forward", kind.weights, None), ("velocities", kind.velocities, unread)]
            if kind.gradient:
                passes.append(("backward", kind.weights, None))
            for name, address, credits in passes:
                stream = getattr(port, name)
                reader = self._reader(
                    m, f"{name}{n}", read_port, read, kind.frames, stream, wrap=1, credits=credits
                )
                m.d.comb += [reader.base.eq(address // BEAT_BYTES), reader.frame.eq(getattr(port.ask, name))]
                read += 1

    def _write_passes(self, m: Module, n: int, port: Any, index: int, name: str, address: int) -> Any:
        """Write passes of a spilled layer's new words. Return whether a pass is not yet acknowledged."""
        kind, layer = self.config.spilled[n], streams(self.spilled)[n]
        stream, begins = getattr(layer, f"new_{name}"), getattr(layer.ask, name)
        writer = self._writer(m, f"new_{name}{n}", port, index, kind.frames, stream, wrap=1)
        m.submodules[f"unsettled_{name}{n}"] = unsettled = Credits(limit=(1 << FRAME_BITS) - 1)
        m.d.comb += [
            writer.base.eq(address // BEAT_BYTES),
            writer.frame.eq(begins),
            unsettled.give.eq(begins),
            unsettled.take.eq(port.landed[index]),
        ]
        return unsettled.ok

    def _parameters(self, m: Module, read_port: Any, write_port: Any) -> list[Any]:
        """Move the image as one frame of each port's last channel. Return whether load or dump is running."""
        control, sections = self.control, self.config.sections
        image = sum(map(beats, sections))
        reader = ReadChannel(beats=image, depth=2 * BURST)
        writer = WriteChannel(beats=image, depth=2 * BURST)
        m.submodules.loader = loader = ParameterLoader(sections=sections)
        m.submodules.collector = collector = ParameterCollector(sections=sections)
        self._connect_reader(m, "load", read_port, -1, reader)
        self._connect_writer(m, "dump", write_port, -1, writer)
        connect_typed(m, reader.o, loader.i)
        connect_typed(m, collector.o, writer.i)
        for n in range(len(sections)):
            connect_typed(m, loader.o[n], wiring.flipped(self.load[n]))
            connect_typed(m, wiring.flipped(self.dump[n]), collector.i[n])
        load, dump = control.mode == Mode.LOAD, control.mode == Mode.DUMP
        m.d.comb += [
            reader.base.eq(self.bases.parameters),
            writer.base.eq(self.bases.parameters),
            reader.frames.eq(load),
            writer.frames.eq(dump),
            loader.restart.eq(control.start & load),
            collector.restart.eq(control.start & dump),
        ]
        return [loader.busy, self._frames_pending(m, "undumped", dump, write_port.landed[-1])]

    def _reader(
        self,
        m: Module,
        name: str,
        port: Any,
        index: int,
        kind: Frames,
        o: Any,
        *,
        wrap: int = 0,
        credits: Credits | None = None,
    ) -> ReadChannel:
        """Build a channel from memory to the stream ``o``; each burst takes one of ``credits``, if given."""
        channel = ReadChannel(beats=kind.beats, depth=read_depth(kind.lanes), wrap=wrap)
        self._connect_reader(m, name, port, index, channel, credits)
        unpacker = Gearbox(source=BEAT_WORDS, target=kind.lanes, frame=kind.words)
        m.submodules[f"{name}_unpacker"] = unpacker
        connect_bits(m, channel.o, unpacker.i)
        connect_typed(m, unpacker.o, wiring.flipped(o))
        return channel

    def _writer(
        self, m: Module, name: str, port: Any, index: int, kind: Frames, i: Any, *, wrap: int = 0
    ) -> WriteChannel:
        """Build a channel from the stream ``i`` to memory."""
        channel = WriteChannel(beats=kind.beats, depth=WRITE_DEPTH, wrap=wrap)
        self._connect_writer(m, name, port, index, channel)
        packer = Gearbox(source=kind.lanes, target=BEAT_WORDS, frame=kind.words)
        m.submodules[f"{name}_packer"] = packer
        connect_typed(m, wiring.flipped(i), packer.i)
        connect_bits(m, packer.o, channel.i)
        return channel

    def _connect_reader(
        self,
        m: Module,
        name: str,
        port: Any,
        index: int,
        channel: ReadChannel,
        credits: Credits | None = None,
    ) -> None:
        m.submodules[name] = channel
        request, granted = channel.request, port.requests[index]
        if credits is None:
            connect_typed(m, request, granted)
        else:
            m.d.comb += [
                granted.payload.eq(request.payload),
                granted.valid.eq(request.valid & credits.ok),
                request.ready.eq(granted.ready & credits.ok),
                credits.take.eq(request.valid & request.ready),
            ]
        m.d.comb += [
            channel.restart.eq(self.control.start),
            channel.beat.eq(port.beat),
            channel.arrived.eq(port.arrived[index]),
        ]

    def _connect_writer(self, m: Module, name: str, port: Any, index: int, channel: WriteChannel) -> None:
        m.submodules[name] = channel
        connect_typed(m, channel.request, port.requests[index])
        connect_typed(m, channel.o, port.beats[index])
        m.d.comb += channel.restart.eq(self.control.start)

    def _frames_pending(self, m: Module, name: str, frames: Any, landed: Any) -> Any:
        """Return whether some of the job's ``frames`` are not yet acknowledged; ``landed`` acknowledges one."""
        frames_left = Signal(FRAME_BITS, name=name)
        with m.If(self.control.start):
            m.d.sync += frames_left.eq(frames)
        with m.Elif(landed):
            m.d.sync += frames_left.eq(frames_left - 1)
        return frames_left.any()
