"""Two hosts behind INCEPTIONN NICs, as in ``lab.py``, add their gradients up: ``all_reduce.py`` on each.

    sudo .venv/bin/python examples/nic/all_reduce_lab.py [--values 100000] [--rtl] [--loss 1]

Once with marked packets, once without. Prints, as JSON, whether both hosts have the same sum, how far it is
from the exact one, and the bytes of TCP payload that crossed the wire, by ToS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from lab import HERE, PORT, RECEIVER, SENDER, Wire, gradients, nic, topology

from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab

HOSTS = {"sender": SENDER, "receiver": RECEIVER}


def summed(lab: Lab, own: list[np.ndarray], *, plain: bool, limit: float) -> list[np.ndarray]:
    """Run one process on each host. Return the sum of each host."""
    with tempfile.TemporaryDirectory(prefix="fanin-nic-") as folder:
        ranks = [f"{ip}:{PORT}" for ip in HOSTS.values()]
        processes, sums = [], []
        try:
            for rank, host in enumerate(HOSTS):
                given, total = Path(folder, f"{rank}.npy"), Path(folder, f"{rank}-sum.npy")
                np.save(given, own[rank])
                command = [sys.executable, HERE / "all_reduce.py", str(rank), given, total, "--ranks", *ranks]
                processes.append(lab.start(host, [*command, *["--plain"] * plain]))
                sums.append(total)
            for host, process in zip(HOSTS, processes, strict=True):
                if process.wait(limit):
                    raise SystemExit(f"the rank at the {host} failed")
            return [np.load(total) for total in sums]
        finally:
            for process in processes:
                process.kill()
                process.wait()


def measured(lab: Lab, wire: Wire, own: list[np.ndarray], *, plain: bool, limit: float) -> dict:
    """Run one all-reduce, and measure the traffic on the wire."""
    crossed = Counter(wire.payload)
    sums = summed(lab, own, plain=plain, limit=limit)
    return {
        "alike": sums[0].tobytes() == sums[1].tobytes(),
        "exact": sums[0].tobytes() == (own[0] + own[1]).tobytes(),
        "largest_error": float(np.abs(sums[0] - np.sum(own, axis=0, dtype=np.float64)).max()),
        "payload_on_wire": {f"{tos:#04x}": size for tos, size in sorted((wire.payload - crossed).items())},
    }


def main() -> None:
    """Build the network, run two all-reduces, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=100_000, metavar="N")
    parser.add_argument("--rtl", action="store_true", help="the NICs' Verilog in Verilator, not the NumPy twin")
    parser.add_argument("--loss", type=float, default=0.0, metavar="PERCENT", help="of frames on the wire")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="give an all-reduce up after S")
    args = parser.parse_args()

    own = [gradients(args.values, args.seed + rank) for rank in range(len(HOSTS))]
    options = [] if args.rtl else ["--model"]
    with topology(1500) as lab, contextlib.ExitStack() as stack:
        one, other = (
            stack.enter_context(lab.opened("between", lambda name=name: open_interface(name)))
            for name in ("wire1", "wire2")
        )
        wire = Wire((one, other), args.loss / 100, args.seed)
        stack.callback(wire.close)
        with nic(lab, "left1", "wire0", options, []), nic(lab, "right1", "wire3", options, []):
            compressed = measured(lab, wire, own, plain=False, limit=args.limit)
            plain = measured(lab, wire, own, plain=True, limit=args.limit)
    print(json.dumps({"bytes": own[0].nbytes, "compressed": compressed, "plain": plain}))


if __name__ == "__main__":
    main()
