"""Memories of a layer's weights and velocities."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.interface import LayerControl
from fanin.hdl.layers.parameter_walk import ParameterWalk
from fanin.hdl.stream.connect import connect_typed


class Parameters(wiring.Component):
    """Memories of weights and velocities, ``lanes`` of either in a word, with their update, load and dump.

    The layer reads weights at two addresses, and reads and writes velocities. During a load or dump, and from
    ``update`` to ``updated``, it must not write, and its reads return undefined words.

    A weight is written at the address of the forward port, so the weights' memory has two ports in all. For
    UltraScale+, yosys maps the weights to true dual-port block RAM, and the velocities to simple dual-port
    block RAM. For an ECP5 it builds the weights' memory twice. Shallow memories become LUTs.

    Members
    -------
    ``control`` : In, ``LayerControl``
    ``forward_address``, ``backward_address``, ``velocity_address`` : In, range(depth)
    ``forward_weights``, ``backward_weights`` : Out, ``ArrayLayout(32, lanes)``
        Weights, one cycle after their address.
    ``velocities`` : Out, ``ArrayLayout(32, lanes)``
        Velocities, one cycle after their address. They include a write in the cycle of the address.
    ``write`` : In(1)
        Write ``new_velocities`` to ``write_address``.
    ``write_address`` : In, range(depth)
    ``new_velocities`` : In, ``ArrayLayout(32, lanes)``
    ``update``, ``updated`` : In(1), Out(1)
        Pulses: begin and end of an update. From the cycle after ``updated`` on, reads and writes are allowed.
    ``eta`` : In(32)
        Stable from ``update`` to ``updated``.
    ``load``, ``dump`` : In, Out, streams of words of 32 bits
        Parameters in the order of ``ParameterWalk``.
    ``done`` : Out(1)
        No load or dump is in progress.

    Parameters
    ----------
    ``lanes`` : int, at least 1
    ``depth`` : int, at least 1

    Latency
    -------
    As in ``ParameterWalk``: an update takes one cycle per parameter plus ``update_latency(lanes)``.

    Source
    ------
    NADA, section IV-C and table I; docs/systems/layers.md, "Training".
    """

    def __init__(self, *, lanes: int, depth: int):
        self.lanes = lanes
        self.depth = depth
        self._word = word = data.ArrayLayout(WORD_BITS, lanes)
        address = range(depth)
        super().__init__(
            {
                "control": In(LayerControl),
                "forward_address": In(address),
                "forward_weights": Out(word),
                "backward_address": In(address),
                "backward_weights": Out(word),
                "velocity_address": In(address),
                "velocities": Out(word),
                "write": In(1),
                "write_address": In(address),
                "new_velocities": In(word),
                "update": In(1),
                "updated": Out(1),
                "eta": In(WORD_BITS),
                "load": In(stream.Signature(WORD_BITS)),
                "dump": Out(stream.Signature(WORD_BITS)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build two memories; the walk takes over their ports during an update, a load or a dump."""
        m = Module()
        m.submodules.walk = walk = ParameterWalk(lanes=self.lanes, depth=self.depth)
        connect_typed(m, flipped(self.load), walk.load)
        connect_typed(m, walk.dump, flipped(self.dump))
        m.d.comb += [
            walk.control.eq(self.control),
            walk.update.eq(self.update),
            walk.eta.eq(self.eta),
            self.updated.eq(walk.updated),
            self.done.eq(walk.done),
        ]
        self._weights(m, walk)
        self._velocities(m, walk)
        return m

    def _weights(self, m: Module, walk: ParameterWalk) -> None:
        m.submodules.weights = memory = Memory(shape=self._word, depth=self.depth, init=[])
        write, forward, backward = memory.write_port(granularity=1), memory.read_port(), memory.read_port()
        shared_address = Mux(walk.writing, walk.write_address, self.forward_address)
        m.d.comb += [
            write.addr.eq(shared_address),
            forward.addr.eq(shared_address),
            write.en.eq(walk.weight_lanes),
            *(write.data[lane].eq(walk.new.weight) for lane in range(self.lanes)),
            self.forward_weights.eq(forward.data),
            backward.addr.eq(Mux(walk.reading, walk.read_address, self.backward_address)),
            self.backward_weights.eq(backward.data),
            walk.weights.eq(backward.data),
        ]

    def _velocities(self, m: Module, walk: ParameterWalk) -> None:
        m.submodules.velocities = memory = Memory(shape=self._word, depth=self.depth, init=[])
        write = memory.write_port(granularity=1)
        read = memory.read_port(transparent_for=(write,))
        m.d.comb += [
            write.addr.eq(Mux(walk.writing, walk.write_address, self.write_address)),
            write.en.eq(walk.velocity_lanes | self.write.replicate(self.lanes)),
            *(
                write.data[lane].eq(Mux(walk.writing, walk.new.velocity, self.new_velocities[lane]))
                for lane in range(self.lanes)
            ),
            read.addr.eq(Mux(walk.reading, walk.read_address, self.velocity_address)),
            self.velocities.eq(read.data),
            walk.velocities.eq(read.data),
        ]
