"""Add float32 vectors of several hosts up over TCP, and ask the NICs to compress them: one rank of it.

    python all_reduce.py RANK OWN.npy SUM.npy --ranks 10.28.0.1:34998 10.28.0.2:34998 [--plain]

``--plain`` marks no packet: the sum is exact.
"""

from __future__ import annotations

import argparse

import numpy as np

from fanin.codec.facts import Inceptionn
from fanin.host.socket_ring import Ring

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("rank", type=int)
parser.add_argument("own")
parser.add_argument("sum")
parser.add_argument("--ranks", nargs="+", required=True, metavar="HOST:PORT", help="of all ranks, in order")
parser.add_argument("--plain", action="store_true", help="as every other program does")
parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="give a rank up after S")
args = parser.parse_args()

addresses = [(host, int(port)) for host, _, port in (rank.rpartition(":") for rank in args.ranks)]
codec = None if args.plain else Inceptionn()
with Ring(args.rank, addresses, codec=codec, timeout=args.timeout) as ring:
    np.save(args.sum, ring.allreduce(np.load(args.own).astype(np.float32)))
