"""Window registers for the host's access to the models of a node: an address, and the weight at it."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.registers import WindowSignature
from fanin.hdl.glm.node_registers import CHUNK_BITS, ENGINE_BITS, LANE_BITS
from fanin.hdl.glm.shapes import ModelPortSignature, check_engine


class ModelAddress(data.Struct):
    """Address of a weight, packed as by ``node_registers.model_address``."""

    lane: LANE_BITS
    chunk: CHUNK_BITS
    engine: ENGINE_BITS


class ModelWindow(wiring.Component):
    """Bridge from two window registers to the model of an engine.

    Every access of ``weight`` advances the address to the next lane, and from the last lane to the next chunk.
    While ``enable`` is low, or at an address outside the model, a read returns 0 and a write has no effect;
    both are answered.

    Members
    -------
    ``address`` : In, ``WindowSignature``
        Register with a ``ModelAddress``.
    ``weight`` : In, ``WindowSignature``
        Register with the weight at that address, signed.
    ``enable`` : In, 1
        Allow access to the model.
    ``engine`` : Out, range(engines)
        Engine whose model ``host`` accesses.
    ``host`` : Out, ``ModelPortSignature``
        Access to the model.

    Parameters
    ----------
    ``engines`` : int, at least 1
        Number of engines.
    ``lanes`` : int, a power of two, 2…64
        Weights of a chunk.
    ``depth`` : int, 1…4096
        Chunks of an engine.

    Latency
    -------
    ``weight`` is answered 1 cycle after a write, ``READ_LATENCY`` + 2 cycles after a read, which is 5;
    ``address`` in the same cycle.

    Source
    ------
    docs/systems/glm.md, "The model window".
    """

    def __init__(self, *, engines: int, lanes: int, depth: int):
        if engines < 1:
            raise ValueError(f"engines must be at least 1, not {engines!r}")
        check_engine(lanes=lanes, banks=2, depth=depth)
        self.engines = engines
        self.lanes = lanes
        self.depth = depth
        super().__init__(
            {
                "address": In(WindowSignature()),
                "weight": In(WindowSignature()),
                "enable": In(1),
                "engine": Out(range(engines)),
                "host": Out(ModelPortSignature(depth=depth, lanes=lanes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Register requests and answers; the address advances with every answer."""
        m = Module()
        address = Signal(ModelAddress)
        host, weight = self.host, self.weight
        read_pending = Signal()
        reading = Signal(ModelPortSignature.READ_LATENCY + 1)  # shift register of a read in flight
        request = Signal()
        m.d.comb += [
            request.eq((weight.read | weight.write) & ~read_pending & ~weight.ready),
            self.address.ready.eq(1),
            self.address.read_data.eq(address),
            self.engine.eq(address.engine),
            host.lane.eq(address.lane),
            host.chunk.eq(address.chunk),
            host.write_data.eq(weight.write_data),
        ]
        may_use = (
            self.enable
            & (address.lane < self.lanes)
            & (address.chunk < self.depth)
            & (address.engine < self.engines)
        )
        valid_read = Signal()
        with m.If(request):
            m.d.sync += valid_read.eq(may_use)
        m.d.sync += [
            host.write.eq(weight.write & request & may_use),
            host.read.eq(weight.read & request & may_use),
            weight.read_data.eq(Mux(valid_read, host.read_data, 0)),
            reading.eq(Cat(weight.read & request, reading)),
            read_pending.eq((request & weight.read) | (read_pending & ~reading[-1])),
            weight.ready.eq((request & weight.write) | reading[-1]),
        ]

        position = Cat(address.lane[: (self.lanes - 1).bit_length()], address.chunk)
        with m.If(self.address.write):
            m.d.sync += address.eq(self.address.write_data)
        with m.Elif(weight.ready):
            m.d.sync += position.eq(position + 1)
        return m
