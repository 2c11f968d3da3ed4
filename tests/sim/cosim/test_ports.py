# amaranth: UnusedElaboratable=no
"""The top finds the ports of a node, and refuses a node that it would leave open."""

import pytest
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.glm.facts import PRESETS
from fanin.hdl.bus.axi4 import AXI4LiteSignature, AXI4ReadSignature, AXI4WriteSignature
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.stream.packet import packet_stream
from fanin.sim.cosim.ports import NodePorts

GOOD = {
    "axil": In(AXI4LiteSignature(address_width=12)),
    "samples": Out(AXI4ReadSignature(data_width=64, address_width=34)).array(2),
    "mac_tx": Out(packet_stream(128)),
    "mac_rx": In(packet_stream(128, error=True)),
    "events": Out(3),
}
HOST = {"host_tx": In(packet_stream(256)), "host_rx": Out(packet_stream(256))}


class Node(wiring.Component):
    def __init__(self, members):
        self.members = members
        super().__init__(members)

    def elaborate(self, platform):
        raise AssertionError("not elaborated here")


def test_buses_and_widths_are_found():
    ports = NodePorts.of(Node(GOOD))
    assert [(m.name, m.address_bits, m.data_bits, m.id_bits) for m in ports.memories] == [
        ("samples0", 34, 64, 1),
        ("samples1", 34, 64, 1),
    ]
    assert (ports.host.name, ports.host.address_bits) == ("axil", 12)
    assert ports.mac_width == 128
    assert ports.event_bits == 3


def test_a_port_may_read_write_or_both():
    axi = {"data_width": 128, "address_width": 36}
    read, write = AXI4ReadSignature(**axi), AXI4WriteSignature(**axi)
    both = wiring.Signature(dict(read.members) | dict(write.members))
    ports = NodePorts.of(Node(GOOD | {"memory": Out(both), "results": Out(write)}))
    assert {m.name: (m.reads, m.writes, m.data_bits, m.id_bits) for m in ports.memories} == {
        "samples0": (True, False, 64, 1),
        "samples1": (True, False, 64, 1),
        "memory": (True, True, 128, 1),
        "results": (False, True, 128, 1),
    }
    assert ports.host.name == "axil"


def test_a_host_packet_port_is_found_and_memory_is_not_needed():
    assert NodePorts.of(Node(GOOD)).host_width == 0
    without = {name: member for name, member in GOOD.items() if name not in ("samples", "events")}
    ports = NodePorts.of(Node(without | HOST))
    assert (ports.host_width, ports.mac_width, ports.memories, ports.event_bits) == (256, 128, (), 0)
    assert ports.host.name == "axil"


def test_a_node_may_have_no_mac():
    alone = {name: member for name, member in GOOD.items() if not name.startswith("mac")}
    ports = NodePorts.of(Node(alone))
    assert (ports.mac_width, ports.host_width, len(ports.memories)) == (0, 0, 2)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_of_the_node_fits(preset):
    config = PRESETS[preset]
    ports = NodePorts.of(GlmNode(config=config))
    assert [m.name for m in ports.memories] == [*(f"samples{n}" for n in range(config.sample_ports)), "labels"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"led": Out(1)}, "nothing for the ports led"),
        ({"axil": In(1)}, "one AXI4-Lite port, not 0"),
        ({"mac_rx": In(packet_stream(128))}, "lack mac_rx_tuser"),
        ({"mac_rx": Out(1)}, "the mac's packet streams lack mac_rx_tdata"),
        ({"events": Out(65)}, "events must be at most 64"),
        (
            {"samples": Out(AXI4ReadSignature(data_width=64, address_width=34, id_width=0))},
            "lacks samples_arid",
        ),
        (
            {"results": Out(AXI4WriteSignature(data_width=64, address_width=34, id_width=0))},
            "lacks results_awid, results_bid",
        ),
        (
            {"mac_rx": In(packet_stream(64, error=True))},
            "the mac's packet streams must have one width, not 128",
        ),
        ({"host_tx": In(packet_stream(256))}, "the host's packet streams lack host_rx_tdata"),
        (HOST | {"host_tx": Out(packet_stream(128))}, "streams must have one width, not 128 and 256 bits"),
        (HOST | {"host_rx": Out(packet_stream(256, error=True))}, "nothing for the ports host_rx_tuser"),
        (
            {"host_tx": In(packet_stream(1024)), "host_rx": Out(packet_stream(1024))},
            "width of the host's packet streams must be at most 512 bits, not 1024",
        ),
    ],
)
def test_a_node_that_the_top_cannot_drive_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        NodePorts.of(Node(GOOD | change))
