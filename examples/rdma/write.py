"""Write some bytes into another host's memory, and be written to: either end may be a standard NIC.

    python write.py --device rxe0 --listen 10.0.0.1:18515                     # a standard NIC, by pyverbs
    python write.py --port eth0 --ip 10.0.0.2 --connect 10.0.0.1:18515        # fanin's node, by its model

The two ends set up their queue pairs over TCP, write, and check what came against what the other one says it
has sent. With ``--port`` the golden model of the node (:mod:`fanin.rdma.golden.node`) stands at a Linux
interface, with a MAC and an IPv4 address of its own, which the other host must be told of: that is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import secrets
import selectors
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address

from fanin.base.errors import InputError
from fanin.host.ethernet import Interface, open_interface
from fanin.host.rdma_setup import LOOPBACK, End, Rendezvous, negotiate, source_port
from fanin.host.rdma_verbs import VerbsPeer
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Region, Write
from fanin.rdma.golden.nic import Status
from fanin.rdma.golden.node import Node
from fanin.wire.ethernet import Endpoint

TIMEOUT = 0.05  # seconds without an answer, until the model sends again
PSNS = 1 << 24


class VerbsEnd:
    """Local end on a standard NIC."""

    def __init__(self, args: argparse.Namespace):
        self.peer = VerbsPeer(args.device, length=2 * args.bytes, psn=secrets.randbelow(PSNS))
        self.end, self.bytes = self.peer.end, args.bytes

    def run(self, theirs: End, content: bytes, meet: Callable[[str], None]) -> bytes:
        """Write ``content`` to the peer. Return the bytes that the peer has written here."""
        self.peer.fill(content, self.bytes)
        self.peer.connect(negotiate(self.end, theirs), theirs)
        meet("ready")
        self.peer.write(1, self.bytes, self.bytes, remote=theirs.address, rkey=theirs.rkey)
        if (said := self.peer.completion()[1]) != "success":
            raise InputError(f"{self.peer.device}: the write has ended with: {said}")
        meet("written")
        return self.peer.read(self.bytes)


class ModelEnd:
    """Local end on the golden model of fanin's node."""

    def __init__(self, args: argparse.Namespace):
        own = Endpoint(0x02_00_00_00_00_00 | int(args.ip), int(args.ip))
        region = Region(0, args.bytes, secrets.randbits(32), frozenset([FIRST_QUEUE_PAIR]))
        self.interface: Interface = open_interface(args.port)
        self.node = Node(own, bytearray(2 * args.bytes), [region])
        self.end = End.of_node(0, own, region, psn=secrets.randbelow(PSNS), mtu=args.mtu)
        self.bytes = args.bytes
        print(f"at the peer: ip neigh replace {args.ip} lladdr {self.end.mac} dev DEV nud permanent")

    def run(self, theirs: End, content: bytes, meet: Callable[[str], None]) -> bytes:
        """Write ``content`` into theirs; what they have written here."""
        node, size = self.node, self.bytes
        node.memory[size:] = content
        node.connect(0, negotiate(self.end, theirs), theirs.endpoint(source_port(self.end, theirs)))
        meet("ready")
        node.post(0, Write(1, size, theirs.address, theirs.rkey, size))
        self._serve(lambda: node.requester(0).idle)
        (done,) = node.requester(0).completions
        if done.status is not Status.DONE:
            raise InputError(f"the write has ended with: {done.status.value}")
        with ThreadPoolExecutor(1) as pool:
            met = pool.submit(meet, "written")
            self._serve(met.done)  # the other end may not have heard our last answer
            met.result()
        return bytes(node.memory[:size])

    def _serve(self, done: Callable[[], bool]) -> None:
        """Let the node receive and send."""
        heard = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.interface, selectors.EVENT_READ)
            while not done():
                for frame in self.node.frames():
                    self.interface.send(frame)
                if selector.select(TIMEOUT / 10):
                    heard = time.monotonic()
                    for _, frame in self.interface.receive():
                        self.node.receive(frame)
                elif time.monotonic() > heard + TIMEOUT:
                    heard = time.monotonic()
                    self.node.timeout()


def content_of(end: End, size: int) -> bytes:
    """Return the bytes that an end sends; both ends can compute them."""
    return random.Random(end.to_json()).randbytes(size)


def address(text: str) -> tuple[str, int]:
    """Return host and port of [HOST:]PORT; the default host is this machine's loopback address."""
    host, _, port = text.rpartition(":")
    return host or LOOPBACK, int(port)


def main() -> None:
    """Set up the connection, write, and check the received bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--device", help="an RDMA device, as ibv_devices names it")
    kind.add_argument("--port", metavar="IF", help="a Linux interface for the model of fanin's node")
    parser.add_argument("--ip", type=IPv4Address, default=IPv4Address("10.0.0.2"), help="the model's address")
    parser.add_argument(
        "--mtu", type=int, default=1024, help="the model's largest path MTU (default: %(default)s)"
    )
    parser.add_argument("--bytes", type=int, default=1 << 20)
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument(
        "--listen", type=address, metavar="[HOST:]PORT", help="wait for the other end, at HOST of this machine"
    )
    side.add_argument("--connect", type=address, metavar="[HOST:]PORT", help="where the other end listens")
    args = parser.parse_args()
    end = VerbsEnd(args) if args.device else ModelEnd(args)
    host, port = args.listen or args.connect
    meeting = Rendezvous.listen(port, host=host) if args.listen else Rendezvous.connect(host, port)
    with meeting:
        theirs = meeting.exchange(end.end)
        began = time.monotonic()
        got = end.run(theirs, content_of(end.end, args.bytes), meeting.wait)
    if got != content_of(theirs, args.bytes):
        raise SystemExit("what came is not what was sent")
    took = time.monotonic() - began
    digest = hashlib.sha256(got).hexdigest()[:16]
    print(f"{args.bytes} bytes written, {args.bytes} received as they were sent ({digest}), {took:.2f} s")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
