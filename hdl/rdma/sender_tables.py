"""Tables of a requester for each queue pair: a row of state, its settings, a ring of descriptors."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.queue_pair import Settings, index_bits, write_layout
from fanin.rdma.facts import MAX_RETRIES, MAX_WINDOW_BITS, RdmaConfig
from fanin.wire.rdma import PSN_BITS

FLIGHT_BITS = MAX_WINDOW_BITS + 1  # bits of a number of packets in flight


def row_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a sender's state. Ring pointers have an extra bit to tell full from empty."""
    pointer = config.descriptors.bit_length()
    return data.StructLayout(
        {
            "enable": 1,
            "head": pointer,  # the oldest descriptor that is not complete
            "send": pointer,  # the descriptor of the next packet to send
            "tail": pointer,  # the place of the next descriptor
            "done": PSN_BITS,  # packets acknowledged, counted from the head's first
            "oldest": PSN_BITS,  # PSN of the oldest packet that is not acknowledged
            "flight": FLIGHT_BITS,  # packets sent and not acknowledged
            "packet_number": PSN_BITS,  # index of the next packet to send in its message, from 0
            "sent_before": FLIGHT_BITS,  # packets, from the oldest on, sent before the last going back
            "attempts": MAX_RETRIES.bit_length(),  # times of going back since the last progress
            "not_ready": 1,  # the receiver has no buffer for the oldest packet: wait for the timeout
        }
    )


def descriptor_layout(config: RdmaConfig) -> data.StructLayout:
    """Return the layout of a descriptor in the ring; ``last_number``: index of its last packet, from 0."""
    members = {name: shape for name, shape in write_layout(config).members.items() if name != "index"}
    return data.StructLayout(members | {"last_number": PSN_BITS})


class SenderTables(wiring.Component):
    """Rows, settings and rings of all queue pairs, with access to one queue pair at a time.

    Members
    -------
    ``index`` : In, range(queue pairs)
        Queue pair to access.
    ``row`` : Out, :func:`row_layout`
        State of the queue pair.
    ``settings`` : Out, Settings
        Settings of the queue pair.
    ``new_row`` : In, :func:`row_layout`
        Row to write.
    ``write_row`` : In, 1
        Write ``new_row``.
    ``new_settings`` : In, Settings
        Settings to write.
    ``write_settings`` : In, 1
        Write ``new_settings``.
    ``pointer`` : In, a pointer into the ring
        Descriptor to read.
    ``read`` : In, 1
        Read the descriptor at ``pointer``; 0: ``descriptor`` keeps its value.
    ``descriptor`` : Out, :func:`descriptor_layout`
        Descriptor read last.
    ``new_pointer`` : In, a pointer into the ring
        Place of ``new_descriptor``.
    ``new_descriptor`` : In, :func:`descriptor_layout`
        Descriptor to write.
    ``write_descriptor`` : In, 1
        Write ``new_descriptor``.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Numbers of queue pairs and descriptors.

    Latency
    -------
    ``row`` and ``settings`` depend combinationally on ``index``; ``descriptor`` follows in the next cycle.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        row, descriptor = row_layout(config), descriptor_layout(config)
        pointer = row["head"].shape
        super().__init__(
            {
                "index": In(index_bits(config)),
                "row": Out(row),
                "settings": Out(Settings),
                "new_row": In(row),
                "write_row": In(1),
                "new_settings": In(Settings),
                "write_settings": In(1),
                "pointer": In(pointer),
                "read": In(1),
                "descriptor": Out(descriptor),
                "new_pointer": In(pointer),
                "new_descriptor": In(descriptor),
                "write_descriptor": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store rows and settings in distributed RAM, and all rings in one block RAM."""
        m = Module()
        count, index = self.config.queue_pairs, self.index
        m.submodules.rows = rows = Memory(shape=row_layout(self.config), depth=count, init=[])
        m.submodules.settings_table = settings = Memory(shape=Settings, depth=count, init=[])
        tables = (
            (rows, self.row, self.new_row, self.write_row),
            (settings, self.settings, self.new_settings, self.write_settings),
        )
        for table, current, new, enable in tables:
            read, write = table.read_port(domain="comb"), table.write_port()
            m.d.comb += [read.addr.eq(index), current.eq(read.data)]
            m.d.comb += [write.addr.eq(index), write.data.eq(new), write.en.eq(enable)]
        m.submodules.rings = rings = Memory(
            shape=descriptor_layout(self.config), depth=count * self.config.descriptors, init=[]
        )
        read, write = rings.read_port(), rings.write_port()
        m.d.comb += [
            read.addr.eq(Cat(self.pointer[:-1], index)),
            read.en.eq(self.read),
            self.descriptor.eq(read.data),
            write.addr.eq(Cat(self.new_pointer[:-1], index)),
            write.data.eq(self.new_descriptor),
            write.en.eq(self.write_descriptor),
        ]
        return m
