"""p4lang's tutorials in a lab: their topology, programs and entries, ``fanin p4 serve`` for each switch."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from finsy import p4entity
from finsy.proto import p4r

from fanin.base.tools import program
from fanin.host.ethernet import open_interface
from fanin.host.lab import Lab
from fanin.sim.switch.bmv2.p4runtime import P4Runtime
from tests.echo_request import echo_requests

NET = "net"  # the namespace of all switches
CPU_PORT = 510
_FIRST = 50051  # the first switch's P4Runtime port, as the tutorials' controllers know it
_START = 60.0


class Exercise:
    """One exercise of the folder ``exercises``, running.

    ``source`` is its program, within the exercise; a switch of ``programs`` has another. ``options`` go to
    ``fanin p4 serve``.
    """

    def __init__(self, folder: Path, topology: str, source: str, *, programs=(), options=()):
        self.folder = folder
        self.topology = json.loads((folder / topology).read_text())
        self._programs = {name: folder / path for name, path in dict(programs).items()}
        self._source = folder / source
        self._options = list(options)
        self.hosts = self.topology["hosts"]
        self.switches = sorted(self.topology["switches"])
        self._opened = contextlib.ExitStack()
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.said = ""

    def __enter__(self):
        try:
            self.lab = self._opened.enter_context(Lab([NET, *self.hosts]))
            ports = self._wired()
            for name, host in self.hosts.items():
                self._addressed(name, host)
            for number, name in enumerate(self.switches):
                self._serve(number, name, ports[name])
            for number, name in enumerate(self.switches):
                self._ready(name)
                self._install(number, name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                self.said += process.communicate(timeout=_START)[1]
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        self._opened.close()

    def _wired(self):
        ports = {name: [] for name in self.switches}
        for one, other, *_ in self.topology["links"]:
            ends = []
            for end in (one, other):
                if end in self.hosts:
                    ends += [end, "eth0"]
                else:
                    switch, port = end.split("-p")
                    ports[switch].append((int(port), end))
                    ends += [NET, end]
            self.lab.wire(*ends)
        return ports

    def _addressed(self, name, host):
        gateway, neighbours = None, {}
        for command in host.get("commands", ()):
            if found := re.match(r"route add default gw (\S+) dev eth0", command):
                gateway = found[1]
            elif found := re.match(r"arp -i eth0 -s (\S+) (\S+)", command):
                neighbours[found[1]] = found[2]
        self.lab.address(name, "eth0", host["ip"], mac=host["mac"], gateway=gateway, neighbours=neighbours)

    def _serve(self, number, name, ports):
        command = [program("fanin", "pip install fanin"), "p4", "serve", self._programs.get(name, self._source)]
        for port, interface in ports:
            command += ["--port", f"{port}={interface}"]
        command += ["--grpc", f"127.0.0.1:{_FIRST + number}", "--device", str(number)]
        if self.topology["switches"][name].get("cpu_port"):
            command += ["--cpu-port", str(CPU_PORT)]
        self.processes[name] = self.lab.start(
            NET, [*command, *self._options, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def _ready(self, name):
        lines = self.processes[name].stderr
        assert "P4Runtime" in lines.readline() + lines.readline(), f"{name} did not start"

    def _install(self, number, name):
        """The entries, groups and sessions of a switch's file."""
        file = self.topology["switches"][name].get("runtime_json")
        if file is None:
            return
        runtime = json.loads((self.folder / file).read_text())
        with contextlib.closing(self.controller(number)) as control:
            for entry in runtime["table_entries"]:
                default = entry.get("default_action", False)
                control._write(
                    p4r.Update.MODIFY if default else p4r.Update.INSERT,
                    p4entity.P4TableEntry(
                        entry["table"],
                        match=None if default else p4entity.P4TableMatch(_matches(entry.get("match", {}))),
                        action=p4entity.P4TableAction(entry["action_name"], **entry["action_params"]),
                        priority=entry.get("priority", 0),
                        is_default_action=default,
                    ),
                )
            for group in runtime.get("multicast_group_entries", ()):
                replicas = [
                    p4entity.P4Replica(r["egress_port"], instance=r["instance"]) for r in group["replicas"]
                ]
                entry = p4entity.P4MulticastGroupEntry(group["multicast_group_id"], replicas=replicas)
                control._write(p4r.Update.INSERT, entry)

    def controller(self, number):
        """A controller of a switch, in its namespace."""
        return self.lab.opened(NET, lambda: P4Runtime(f"127.0.0.1:{_FIRST + number}", device=number))

    def ip(self, host):
        """A host's address."""
        return self.hosts[host]["ip"].partition("/")[0]

    def pings(self, one, other):
        """Whether a host reaches another."""
        return len(echo_requests(self.lab, one, self.ip(other), count=2, timeout=4)) == 2

    def run(self, host, script, *arguments, given="", limit=60.0):
        """One of the exercise's own scripts, in a host, with ``given`` on its input; what it printed."""
        command = self.lab.inside(host, [sys.executable, self.folder / script, *arguments])
        done = subprocess.run(
            command, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit
        )
        return done.stdout

    @contextlib.contextmanager
    def listening(self, *hosts, seconds=2.0):
        """What comes in at each host's interface meanwhile, and for ``seconds`` more: frames by host."""
        heard = {host: [] for host in hosts}
        with contextlib.ExitStack() as opened:
            interfaces = {
                host: opened.enter_context(self.lab.opened(host, lambda: open_interface("eth0")))
                for host in hosts
            }
            yield heard
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for host, interface in interfaces.items():
                    heard[host] += [frame for _, frame in interface.receive()]
                time.sleep(0.01)


def _matches(match):
    """As finsy takes them: a list is a prefix, or a value and a mask, or a value alone."""
    values = {name: value if isinstance(value, list) else [value] for name, value in match.items()}
    return {name: tuple(value) if len(value) > 1 else value[0] for name, value in values.items()}
