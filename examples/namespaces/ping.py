"""Two hosts and a switch in network namespaces: one host pings the other through a P4 program.

    sudo .venv/bin/python examples/namespaces/ping.py

The script removes the namespaces and their processes when it ends, even after an error.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fanin.base.tools import program
from fanin.host.lab import Lab

HERE = Path(__file__).parent
HOSTS = {1: "h1", 2: "h2"}


def main() -> None:
    """Build the network, serve the program, and ping."""
    with Lab(["switch", *HOSTS.values()]) as lab:
        for port, host in HOSTS.items():
            gateway = f"10.0.{port}.254"
            lab.wire("switch", f"port{port}", host, "eth0")
            lab.address(
                host, "eth0", f"10.0.{port}.1/24", mac=f"02:00:00:00:00:0{port}", gateway=gateway,
                neighbours={gateway: "02:00:00:00:00:fe"},  # the program answers no ARP
            )  # fmt: skip
        serve = [program("fanin", "pip install fanin"), "p4", "serve", HERE / "router.p4"]
        serve += ["--entries", HERE / "entries.json", "--port", "1=port1", "--port", "2=port2"]
        switch = lab.start("switch", serve, stderr=subprocess.PIPE, text=True)
        assert switch.stderr is not None
        ready = switch.stderr.readline() + switch.stderr.readline()  # what it serves, where P4Runtime is
        sys.stderr.write(ready)
        if "P4Runtime" not in ready:
            raise SystemExit(switch.wait())
        print(lab.run("h1", ["ping", "-c", "3", "-i", "0.2", "10.0.2.1"]))
        switch.terminate()  # it prints what each port has carried
        switch.communicate(timeout=30)


if __name__ == "__main__":
    main()
