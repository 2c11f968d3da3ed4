"""A file's bytes from one host's memory into another's, by two nodes of one-sided writes.

    sudo .venv/bin/python examples/nic/writes.py FILE [--rtl]

    a.mem ══ node 10.0.0.1 ── a0 ═══ veth ═══ b0 ── node 10.0.0.2 ══ b.mem
             └── namespace "a" ──┘            └── namespace "b" ──┘

Prints, as JSON, how long that took and whether the bytes are the same. The nodes' counters stand beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fanin.base.tools import python_module
from fanin.host.lab import Lab
from fanin.host.nic import RdmaNic

HOSTS = {"a": "10.0.0.1", "b": "10.0.0.2"}
_START = 600.0  # seconds; a node in RTL is built at its first start
_CONNECT = 20.0
_WORD = 64  # bytes, of which memory is a multiple


@contextlib.contextmanager
def node(lab: Lab, host: str, peer: str, folder: Path, size: int, *options: str) -> Iterator[RdmaNic]:
    """Run a node during the context, controlled by its control socket."""
    control = folder / f"{host}.sock"
    command = [
        *python_module("fanin", "nic", "run", "--kind", "rdma", *options, "--port", f"{host}0"),
        *("--ip", HOSTS[host], "--peer", HOSTS[peer], "--control", str(control)),
        *("--memory", str(folder / f"{host}.mem"), "--memory-bytes", str(size)),
    ]
    process = lab.start(host, command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + _START
        while not control.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the node at {host} did not start")
            time.sleep(0.05)
        with RdmaNic(control) as nic:
            yield nic
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Write the file to the other node, and compare both copies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rtl", action="store_true", help="the nodes' Verilog in Verilator, not their model")
    args = parser.parse_args()

    data = np.fromfile(args.file, np.uint8)
    size = max(-(-data.size // _WORD), 1) * _WORD
    options = [] if args.rtl else ["--model"]
    with Lab(list(HOSTS)) as lab, tempfile.TemporaryDirectory(prefix="fanin-") as name:
        lab.wire("a", "a0", "b", "b0")
        with (
            node(lab, "a", "b", Path(name), size, *options) as a,
            node(lab, "b", "a", Path(name), size, *options) as b,
        ):
            end = time.monotonic() + _CONNECT
            while not (a.info()["connected"] and b.info()["connected"]):
                if time.monotonic() > end:
                    raise SystemExit("the nodes did not find each other")
                time.sleep(0.05)
            a.memory()[: data.size] = data
            began = time.monotonic()
            ending = a.write(data.size)
            found = {
                "ending": ending.name.lower(),
                "seconds": round(time.monotonic() - began, 3),
                "identical": bool(np.array_equal(b.memory()[: data.size], data)),
                "counters": {host: nic.counters() for host, nic in (("a", a), ("b", b))},
            }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
