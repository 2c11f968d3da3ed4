"""Two hosts behind INCEPTIONN NICs, in network namespaces of this machine: one sends the other float32.

    sudo .venv/bin/python examples/nic/lab.py [--megabytes 1] [--rtl] [--loss 1] [--mtu 1500]

    sender ── left0 │ left1 ── NIC ── wire0 ── (capture, loss) ── wire3 ── NIC ── right1 │ right0 ── receiver
                    └──────────────────── namespace "between" ───────────────────────────┘

Over TCP and twice: once with ToS 0x28, once without. Prints, as JSON, what arrived each time: the largest
error, TCP's checksum errors and retransmissions as Linux counted them, and the bytes of TCP payload that
crossed the wire, counted by a capture that knows nothing of the NICs. What they counted stands beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fanin.base.tools import python_module
from fanin.host.ethernet import Interface, open_interface
from fanin.host.lab import Lab

HERE = Path(__file__).parent
SENDER, RECEIVER = "10.28.0.1", "10.28.0.2"
PORT = 34998
_START = 600.0  # seconds; a NIC in RTL is built at its first start
_END = 20.0


class Wire:
    """Wire between two interfaces, in its own thread: loses the share ``loss`` of frames, and counts by ToS."""

    def __init__(self, ends: tuple[Interface, Interface], loss: float, seed: int):
        self.frames: Counter[int] = Counter()
        self.payload: Counter[int] = Counter()  # of TCP, in bytes
        self.lost = 0
        self._ends, self._loss, self._random = ends, loss, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(_END)

    def _carry(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, end in enumerate(self._ends):
                selector.register(end, selectors.EVENT_READ, number)
            while not self._stop.is_set():
                for key, _ in selector.select(0.1):
                    for _, frame in self._ends[key.data].receive():
                        self._take(frame, self._ends[1 - key.data])

    def _take(self, frame: bytes, to: Interface) -> None:
        if frame[12:14] == b"\x08\x00" and frame[23] == 6:
            end = 14 + int.from_bytes(frame[16:18], "big")
            self.frames[frame[15]] += 1
            self.payload[frame[15]] += end - 34 - (frame[46] >> 4) * 4
        if self._random.random() < self._loss:
            self.lost += 1
        else:
            to.send(frame)


def gradients(count: int, seed: int) -> np.ndarray:
    """Return values distributed like gradients of a training: most of them small."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(count) * np.exp(rng.normal(-6, 2, count))).astype(np.float32)


@contextlib.contextmanager
def topology(mtu: int) -> Iterator[Lab]:
    """Create the namespaces, their interfaces and addresses."""
    with Lab(["sender", "between", "receiver"]) as lab:
        lab.wire("sender", "left0", "between", "left1")
        lab.wire("receiver", "right0", "between", "right1")
        for one, other in (("wire0", "wire1"), ("wire2", "wire3")):
            lab.wire("between", one, "between", other)
        for name in ("left1", "wire0", "wire1", "wire2", "wire3", "right1"):
            lab.run("between", ["ip", "link", "set", name, "mtu", str(mtu)])
        for host, name, ip in (("sender", "left0", SENDER), ("receiver", "right0", RECEIVER)):
            lab.run(host, ["ip", "link", "set", name, "mtu", str(mtu)])
            lab.address(host, name, f"{ip}/24")
        yield lab


@contextlib.contextmanager
def nic(lab: Lab, host: str, wire: str, options: list[str], found: list[dict]) -> Iterator[None]:
    """Run a NIC during the context, and append its counters to ``found``."""
    command = python_module("fanin", "nic", "run", "--host", host, "--wire", wire, "--json")
    process = lab.start(
        "between", [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    guard = threading.Timer(_START, process.kill)
    guard.start()
    try:
        said = process.stderr.readline()
        while said and "wire" not in said:
            said = process.stderr.readline()
        if not said:
            raise SystemExit(f"the NIC did not start: {process.communicate(timeout=_END)}")
        guard.cancel()
        yield
        process.terminate()
        found.append(json.loads(process.communicate(timeout=_END)[0]))
    finally:
        guard.cancel()
        process.kill()
        process.wait()


def transfer(lab: Lab, values: np.ndarray, *, plain: bool, limit: float) -> tuple[np.ndarray, float]:
    """Send values from one ordinary process to another. Return the received values and the seconds."""
    with tempfile.TemporaryDirectory(prefix="fanin-nic-") as name:
        sent, received = Path(name, "sent.npy"), Path(name, "received.npy")
        np.save(sent, values)
        receiver = lab.start(
            "receiver",
            [sys.executable, HERE / "receive.py", received, "--port", str(PORT)],
            stdout=sys.stderr,
        )
        try:
            deadline = time.monotonic() + _END  # time limit for the receiver to listen
            while f":{PORT:04X}" not in lab.run("receiver", ["cat", "/proc/net/tcp"]):
                if time.monotonic() > deadline:
                    raise SystemExit("the receiver did not start")
                time.sleep(0.05)
            began = time.monotonic()
            command = [sys.executable, HERE / "send.py", sent, RECEIVER, "--port", str(PORT)]
            lab.run("sender", [*command, *(["--plain"] if plain else [])], limit=limit)
            if receiver.wait(limit):
                raise SystemExit("the receiver failed")
            return np.load(received), time.monotonic() - began
        finally:
            receiver.kill()
            receiver.wait()


def tcp_counters(lab: Lab) -> Counter[str]:
    """Return Linux's TCP counters at both hosts (RFC 4022)."""
    found: Counter[str] = Counter()
    for host in ("sender", "receiver"):
        lines = [line.split() for line in lab.run(host, ["cat", "/proc/net/snmp"]).splitlines()]
        names, numbers = (line[1:] for line in lines if line[0] == "Tcp:")
        found.update(dict(zip(names, map(int, numbers), strict=True)))
    return found


def measured(lab: Lab, wire: Wire, values: np.ndarray, *, plain: bool, limit: float) -> dict:
    """Run one transfer, and return its effects on TCP and on the wire."""
    before, crossed, lost = tcp_counters(lab), Counter(wire.payload), wire.lost
    received, seconds = transfer(lab, values, plain=plain, limit=limit)
    after = tcp_counters(lab)
    same = received.size == values.size
    return {
        "seconds": round(seconds, 3),
        "received": received.nbytes,
        "identical": received.tobytes() == values.tobytes(),
        "largest_error": float(np.abs(received.astype(float) - values).max()) if same else None,
        "checksum_errors": after["InCsumErrors"] - before["InCsumErrors"],
        "retransmitted": after["RetransSegs"] - before["RetransSegs"],
        "payload_on_wire": {f"{tos:#04x}": size for tos, size in sorted((wire.payload - crossed).items())},
        "frames_lost": wire.lost - lost,
    }


def main() -> None:
    """Build the network, transfer twice, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1.0)
    parser.add_argument("--rtl", action="store_true", help="the NICs' Verilog in Verilator, not the NumPy twin")
    parser.add_argument("--loss", type=float, default=0.0, metavar="PERCENT", help="of frames on the wire")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=600.0, metavar="S", help="give a transfer up after S")
    args = parser.parse_args()

    values = gradients(int(args.megabytes * 1e6) // 4, args.seed)
    options = [] if args.rtl else ["--model"]
    nics: list[dict] = []
    with topology(args.mtu) as lab, contextlib.ExitStack() as stack:
        one, other = (
            stack.enter_context(lab.opened("between", lambda name=name: open_interface(name)))
            for name in ("wire1", "wire2")
        )
        wire = Wire((one, other), args.loss / 100, args.seed)
        stack.callback(wire.close)
        with nic(lab, "left1", "wire0", options, nics), nic(lab, "right1", "wire3", options, nics):
            compressed = measured(lab, wire, values, plain=False, limit=args.limit)
            plain = measured(lab, wire, values, plain=True, limit=args.limit)
    print(json.dumps({"bytes": values.nbytes, "compressed": compressed, "plain": plain, "nics": nics[::-1]}))


if __name__ == "__main__":
    main()
