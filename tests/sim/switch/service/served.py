"""A program that has one of everything, served: ports are pairs of sockets, P4Runtime is on loopback."""

from __future__ import annotations

import contextlib
import socket
import threading

from fanin.host.ethernet import BATCH
from fanin.sim.switch.embedded import load
from fanin.sim.switch.service.forwarding import Forwarding
from fanin.sim.switch.service.requests import P4RuntimeService
from fanin.sim.switch.service.server import P4RuntimeServer

CPU = 100
TEXT = """
#include <core.p4>
#include <v1model.p4>
typedef bit<48> Mac;
@controller_header("packet_in") header in_t { bit<9> port; bit<7> reason; }
@controller_header("packet_out") header out_t { bit<9> port; bit<7> unused; }
header ethernet_t { Mac destination; Mac source; bit<16> kind; }
struct Headers { out_t outer; in_t inner; ethernet_t ethernet; }
struct Metadata {}
struct Pair { bit<7> small; int<16> signed; }
parser P(packet_in packet, out Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    state start { transition select(std.ingress_port) { 100: from_cpu; default: ethernet; } }
    state from_cpu { packet.extract(hdr.outer); transition ethernet; }
    state ethernet { packet.extract(hdr.ethernet); transition accept; }
}
control V(inout Headers hdr, inout Metadata meta) { apply {} }
control I(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets_and_bytes) hits;
    counter(4, CounterType.packets) by_port;
    register<bit<48>>(8) last;
    register<Pair>(2) pairs;
    register<bool>(2) flags;
    action forward(bit<9> port) { std.egress_spec = port; }
    action spread(bit<16> group) { std.mcast_grp = group; }
    action copy(bit<9> port) { std.egress_spec = port; clone(CloneType.I2E, 5); }
    action to_controller() {
        hdr.inner.setValid();
        hdr.inner.port = std.ingress_port;
        hdr.inner.reason = 3;
        std.egress_spec = 100;
    }
    action drop() { mark_to_drop(std); }
    table stations {
        key = { hdr.ethernet.destination: exact; }
        actions = { forward; spread; copy; to_controller; @defaultonly drop; }
        default_action = drop();
        counters = hits;
        size = 4;
    }
    table filter {
        key = { hdr.ethernet.source: ternary; hdr.ethernet.kind: range; hdr.ethernet.isValid(): exact; }
        actions = { drop; NoAction; }
    }
    table route { key = { hdr.ethernet.source: lpm; } actions = { forward; @tableonly spread; NoAction; } }
    table choose { key = { hdr.ethernet.kind: optional; } actions = { drop; NoAction; } }
    table fixed {
        key = { hdr.ethernet.kind: exact; }
        actions = { drop; NoAction; }
        const entries = { 0xdead: drop(); }
    }
    apply {
        if (hdr.outer.isValid()) { std.egress_spec = hdr.outer.port; hdr.outer.setInvalid(); exit; }
        by_port.count((bit<32>) std.ingress_port);
        last.write((bit<32>) std.ingress_port, hdr.ethernet.source);
        stations.apply();
        filter.apply(); route.apply(); choose.apply(); fixed.apply();
    }
}
control E(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) { apply {} }
control C(inout Headers hdr, inout Metadata meta) { apply {} }
control D(packet_out packet, in Headers hdr) { apply { packet.emit(hdr.inner); packet.emit(hdr.ethernet); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


#: With action profiles, digests and idle timeouts.
SELECTED = """
#include <core.p4>
#include <v1model.p4>
enum bit<4> Reason { New = 1, Moved = 5 }
header ethernet_t { bit<48> destination; bit<48> source; bit<16> kind; }
struct Headers { ethernet_t ethernet; }
struct Metadata {}
struct Learned { bit<48> source; bit<9> port; Reason reason; }
parser P(packet_in packet, out Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control V(inout Headers hdr, inout Metadata meta) { apply {} }
control I(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    direct_counter(CounterType.packets) spread_hits;
    @max_group_size(5) action_selector(HashAlgorithm.crc16, 8, 16) ways;
    action_profile(3) hops;
    action forward(bit<9> port) { std.egress_spec = port; }
    action mark(bit<16> kind) { hdr.ethernet.kind = kind; }
    action learn() { digest<Learned>(1, { hdr.ethernet.source, std.ingress_port, Reason.Moved }); }
    table spread {
        key = { hdr.ethernet.destination: exact; hdr.ethernet.source: selector; std.ingress_port: selector; }
        actions = { forward; mark; }
        implementation = ways;
        counters = spread_hits;
    }
    table marks {
        key = { hdr.ethernet.destination: exact; }
        actions = { mark; }
        implementation = hops;
    }
    table known {
        key = { hdr.ethernet.source: exact; }
        actions = { NoAction; learn; }
        default_action = learn();
        support_timeout = true;
    }
    apply { known.apply(); spread.apply(); marks.apply(); }
}
control E(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) { apply {} }
control C(inout Headers hdr, inout Metadata meta) { apply {} }
control D(packet_out packet, in Headers hdr) { apply { packet.emit(hdr.ethernet); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def frame_to(destination, source=0x02, kind=0x88B5, payload=b"payload"):
    """An Ethernet frame, addresses as numbers."""
    return destination.to_bytes(6, "big") + source.to_bytes(6, "big") + kind.to_bytes(2, "big") + payload


class FakeInterface:
    """The switch's end of a port; ``host`` is the other one."""

    def __init__(self):
        self._ours, self.host = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self.host.settimeout(20)
        self.lost = self.unsent = 0
        self.carrier = True

    def fileno(self):
        return self._ours.fileno()

    def receive(self):
        frames = []
        with contextlib.suppress(BlockingIOError):
            while len(frames) < BATCH:
                frames.append((0, self._ours.recv(65536)))
        return frames

    def send(self, frame):
        try:
            self._ours.send(frame)
        except BlockingIOError:
            self.unsent += 1
            return False
        return True

    def overrun(self):
        return 0

    def up(self):
        return self.carrier

    def close(self):
        self._ours.close()
        self.host.close()


class Served:
    """A program between ``ports`` fake interfaces, forwarding in a thread; ``address`` is P4Runtime's."""

    def __init__(self, text=TEXT, ports=range(3), cpu=CPU):
        self.program = load(text)
        self.interfaces = {port: FakeInterface() for port in ports}
        self.said = []
        fresh = lambda: self.program.switch(range(511))  # noqa: E731
        self.forwarding = Forwarding(fresh(), self.interfaces, cpu=cpu, report=self.said.append)
        self.service = P4RuntimeService(self.program, self.forwarding, fresh, 7)
        self.server = P4RuntimeServer(self.service, "127.0.0.1:0")
        self.address = f"127.0.0.1:{self.server.port}"
        self._thread = threading.Thread(target=self.forwarding.run, args=(lambda: None,))
        self._thread.start()

    def send(self, port, frame):
        """Hand a frame to a port."""
        self.interfaces[port].host.send(frame)

    def receive(self, port):
        """The next frame that left by a port."""
        return self.interfaces[port].host.recv(65536)

    def close(self):
        """End everything."""
        self.server.close()
        self.forwarding.stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.forwarding.close()
        for interface in self.interfaces.values():
            interface.close()
