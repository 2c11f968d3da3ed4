"""What a requester keeps of each queue pair: a row of state, its settings, a ring of descriptors."""
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

FLIGHT_BITS = MAX_WINDOW_BITS + 1  # of a number of packets in flight


def row_layout(config: RdmaConfig) -> data.StructLayout:
    """State of a sender. Pointers into its ring of descriptors have a bit more, to tell full from empty."""
    pointer = config.descriptors.bit_length()
    return data.StructLayout(
        {
            "enable": 1,
            "head": pointer,  # the oldest descriptor that is not complete
            "send": pointer,  # the descriptor of the next packet to send
            "tail": pointer,  # where the next descriptor will be put
            "done": PSN_BITS,  # packets acknowledged, counted from the head's first
            "oldest": PSN_BITS,  # PSN of the oldest packet that is not acknowledged
            "flight": FLIGHT_BITS,  # packets sent and not acknowledged
            "packet_number": PSN_BITS,  # of the next packet to send, in its message, from 0
            "again": FLIGHT_BITS,  # packets, from the oldest on, that were sent before it last went back
            "attempts": MAX_RETRIES.bit_length(),  # times that it went back since there was progress
            "not_ready": 1,  # the receiver has no buffer for the oldest packet: that waits for the timeout
        }
    )


def descriptor_layout(config: RdmaConfig) -> data.StructLayout:
    """A descriptor in the ring; ``last_number`` is the number of its message's last packet, from 0."""
    members = {name: shape for name, shape in write_layout(config).members.items() if name != "index"}
    return data.StructLayout(members | {"last_number": PSN_BITS})


class SenderTables(wiring.Component):
    """Rows, settings and rings of all queue pairs. Those of one at a time, ``index``, are read and written.

    Members
    -------
    ``index`` : In, range(queue pairs)
    ``row`` : Out, :func:`row_layout`
    ``settings`` : Out, Settings
    ``new_row`` : In, :func:`row_layout`
    ``write_row`` : In, 1
    ``new_settings`` : In, Settings
    ``write_settings`` : In, 1
    ``pointer`` : In, a pointer into the ring
        With ``read``: which descriptor to read.
    ``read`` : In, 1
        Without it ``descriptor`` stays as it is.
    ``descriptor`` : Out, :func:`descriptor_layout`
    ``new_pointer`` : In, a pointer into the ring
        With ``write_descriptor``: where ``new_descriptor`` is put.
    ``new_descriptor`` : In, :func:`descriptor_layout`
    ``write_descriptor`` : In, 1

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    ``row`` and ``settings`` follow ``index`` within the cycle, ``descriptor`` in the next one.

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
        """Rows and settings lie in distributed RAM, the rings one after the other in a block RAM."""
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
