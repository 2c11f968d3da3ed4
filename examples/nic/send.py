"""Send the float32 values of a .npy file over TCP, and ask the NIC to compress them.

    python send.py VALUES.npy HOST [--port 34998] [--plain]

One line makes the difference: ``compressed(connection)`` sets ToS 0x28. ``--plain`` leaves it out.
"""

from __future__ import annotations

import argparse
import socket

import numpy as np

from fanin.host import compressed

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file")
parser.add_argument("host")
parser.add_argument("--port", type=int, default=34998)
parser.add_argument("--plain", action="store_true", help="as every other program does")
parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="give up after S")
args = parser.parse_args()

values = np.load(args.file).astype("<f4")
with socket.create_connection((args.host, args.port), timeout=args.timeout) as connection:
    if not args.plain:
        compressed(connection)
    connection.sendall(values.tobytes())
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # the other end has everything, and closes
