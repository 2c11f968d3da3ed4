"""Receive float32 values over TCP and write them to a .npy file; print how long it took.

    python receive.py VALUES.npy [--port 34998] [--address 0.0.0.0]

An ordinary program: nothing in it knows of a NIC that compresses.
"""

from __future__ import annotations

import argparse
import socket
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file")
parser.add_argument("--port", type=int, default=34998)
parser.add_argument("--address", default="0.0.0.0")
parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="give up after S")
args = parser.parse_args()

with socket.create_server((args.address, args.port)) as server:
    server.settimeout(args.timeout)
    connection, _ = server.accept()
    began, parts = time.monotonic(), []
    with connection:
        connection.settimeout(args.timeout)
        while part := connection.recv(1 << 20):
            parts.append(part)
    values = np.frombuffer(b"".join(parts), "<f4")
    np.save(args.file, values)
    print(f"{values.size} values in {time.monotonic() - began:.3f} s")
