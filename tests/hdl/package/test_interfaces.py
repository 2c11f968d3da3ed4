"""Which ports are a bus, by their names."""

import pytest
from amaranth import Signal

from fanin.hdl.emit import FlatPort
from fanin.hdl.package.interfaces import Protocol, interfaces

READ = "arid> araddr> arlen> arsize> arburst> arlock> arcache> arprot> arqos> arvalid> arready<"
READ += " rid< rdata< rresp< rlast< rvalid< rready>"
LITE = "awaddr< awprot< awvalid< awready> wdata< wstrb< wvalid< wready> bresp> bvalid> bready< araddr< arprot<"
LITE += " arvalid< arready> rdata> rresp> rvalid> rready<"


def ports(prefix, text, width=8):
    """Ports from names, each with ``>`` behind it if it is an output."""
    return [FlatPort(f"{prefix}_{each[:-1]}", Signal(width), each[-1] == ">") for each in text.split()]


def found(*groups):
    flat = [port for group in groups for port in group]
    return [(each.name, each.protocol, each.master, each.by_name) for each in interfaces(flat)]


@pytest.mark.parametrize(
    ("text", "protocol", "master"),
    [
        (READ, Protocol.AXI4, True),
        (LITE, Protocol.AXI4_LITE, False),
        ("tdata> tkeep> tlast> tvalid> tready<", Protocol.AXI4_STREAM, True),
        ("tdata< tkeep< tlast< tuser< tvalid< tready>", Protocol.AXI4_STREAM, False),
    ],
)
def test_a_bus_with_arm_s_names_is_seen_by_name(text, protocol, master):
    assert found(ports("some_bus0", text)) == [("some_bus0", protocol, master, True)]


def test_ports_have_arm_s_logical_names():
    (bus,) = interfaces(ports("a", LITE))
    assert bus.ports["AWADDR"].name == "a_awaddr"
    assert len(bus.ports) == len(LITE.split())


def test_a_plain_stream_of_bytes_is_a_bus_with_other_names():
    (bus,) = interfaces(ports("pa", "payload> valid> ready<", width=16))
    assert (bus.protocol, bus.master, bus.by_name) == (Protocol.AXI4_STREAM, True, False)
    assert {logical: port.name for logical, port in bus.ports.items()} == {
        "TDATA": "pa_payload",
        "TVALID": "pa_valid",
        "TREADY": "pa_ready",
    }


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("payload> valid> ready<", 317),  # no whole bytes
        ("payload> valid> taken<", 16),  # another handshake
        ("tdata> tkeep>", 16),  # no handshake
        ("read< write<", 1),
        ("wdata> wvalid> wready<", 8),  # a channel alone
    ],
)
def test_what_only_looks_like_a_bus_is_none(text, width):
    assert found(ports("x", text, width)) == []


def test_buses_come_in_the_order_of_their_ports():
    groups = ports("z", READ), [FlatPort("events", Signal(7), True)], ports("a", LITE)
    assert [name for name, *_ in found(*groups)] == ["z", "a"]
