"""Nodes of three kinds in one top, and requests for them."""

import functools

import numpy as np

from fanin.link import LinkConfig
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import RunRequest
from fanin.sim.cosim.simulator import Group
from fanin.sim.switch.forward import Forwarder
from tests.sim.cosim import copy_node, scan_node
from tests.sim.cosim.copy_node import CopyNode, mac
from tests.sim.cosim.scan_node import ScanNode

NODES = 4
SPLIT, SCAN = 2, 3  # nodes of the second and the third kind; those before are of the first
SIZE = 1 << 12


def groups():
    return [Group(CopyNode(), 2), Group(CopyNode(split=True)), Group(ScanNode())]


def write_memories(folder):
    """Random files, one a node: both ports of a node that has two are the same memory."""
    paths = [folder / f"memory{node}" for node in range(NODES)]
    for node, path in enumerate(paths):
        np.random.default_rng(node).integers(0, 256, SIZE, dtype=np.uint8).tofile(path)
    return [[paths[0]], [paths[1]], [paths[SPLIT]] * 2, [paths[SCAN]] * 2]


def request(folder, **changes):
    """A request without phases."""
    fields = {
        "nodes": NODES,
        "period_ps": 4000,
        "memories": write_memories(folder),
        "phases": [],
        "switch": functools.partial(Forwarder.of, [mac(node) for node in range(NODES)]),
        "jobs": [],
        "link": LinkConfig(delay_ns=0, gbps=float("inf")),
        "switch_ns": 0.0,
        "seed": 1,
        "watchdog": 5000,
    }
    return RunRequest(**fields | changes)


def copy(source, target, words, *, strobe=0xFFFF_FFFF):
    """Have a copy node copy, and read its status."""
    at, program = copy_node.REGISTERS.offset, HostProgram()
    for name, value in {"source": source, "target": target, "beats": words, "strobe": strobe}.items():
        program.write(at(name), value)
    program.write(at("frames"), 0).write(at("control"), 1)
    return program.poll_field(copy_node.REGISTERS, "status", "busy", 0).read(at("status"))


def send(to, frames, *, beats=2):
    """Have a copy node send frames."""
    at, program = copy_node.REGISTERS.offset, HostProgram()
    values = {"frames": frames, "frame_beats": beats, "last_bytes": 32, "destination": mac(to)}
    for name, value in values.items():
        program.write(at(name), value)
    program.write(at("beats"), 0).write(at("control"), 2)
    return program.poll_field(copy_node.REGISTERS, "status", "busy", 0).read(at("received"))


def scan():
    """Have the scan node begin."""
    return HostProgram().write(scan_node.REGISTERS.offset("settings"), 1 << 3)
