"""The twin between two ports: each frame leaves by the other one."""

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW, Inceptionn
from fanin.codec.golden.packet import receive, transmit
from fanin.sim.nic.ports import HOST, WIRE, InceptionnPorts
from fanin.wire.ethernet import Endpoint
from fanin.wire.tcp import Segment, encode_tcp
from tests.fanin.codec.golden.packets import frame_of, gradients

CODEC = Inceptionn(bound=8)


def test_datagrams_are_compressed_and_restored():
    ports, frame = InceptionnPorts(CODEC), frame_of(gradients(800))
    wire = transmit(frame, CODEC)
    assert len(wire) < len(frame)
    assert ports.process(HOST, frame) == [(WIRE, wire)]
    assert ports.process(WIRE, wire) == [(HOST, receive(wire, CODEC))]
    assert ports.nic.counters["tx_coded"] == ports.nic.counters["rx_coded"] == 1


def test_a_segment_of_an_unknown_connection_is_held_back():
    segment = Segment(Endpoint(1, 1, 1), Endpoint(2, 2, 2), 0, 0, tos=TOS_COMPRESSIBLE, payload=gradients(800))
    ports, frame = InceptionnPorts(CODEC), encode_tcp(segment)
    ((to, wire),) = ports.process(HOST, frame)
    assert (to, len(wire), wire[15]) == (WIRE, len(frame), TOS_RAW)
    assert ports.process(WIRE, wire) == [(HOST, frame)]
    assert ports.alignment.unaligned == 1


def test_a_broken_frame_is_dropped():
    ports = InceptionnPorts(CODEC)
    wire = bytearray(transmit(frame_of(gradients(800)), CODEC))
    wire[42:44] = b"\xff\xff"
    assert ports.process(WIRE, bytes(wire)) == []
