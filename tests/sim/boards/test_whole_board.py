"""A whole board: placed and routed, it does in every cycle what its source does, while a host trains it.

Place and route takes ten minutes.
"""

import json

import pytest

from fanin.cli.main import main
from fanin.job import SWITCH
from fanin.link import LinkConfig
from fanin.sim.boards.board import Boards
from fanin.sim.boards.hosts import BoardAddress, UdpHost
from fanin.sim.boards.world import World
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import UDP_PORT
from tests.sim.boards.builds import build
from tests.sim.boards.compare import assert_equal, changes
from tests.sim.boards.test_world import serving

pytestmark = [pytest.mark.slow, pytest.mark.verilator]

ADDRESS = "127.0.73.2"
BAD = LinkConfig(delay_ns=500, gbps=1, drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
CLOCK = "eth_rgmii_0_tx_clk"  # of which a trace would have nothing else


class Recording(Boards):
    """A board that writes down what it was given, and when."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.orders = []
        self.sent = []

    def send(self, board, frame, *, time=None, phy=0, bad_fcs=False):
        at = self.time if time is None else time
        self.orders.append((at, frame, bad_fcs))
        super().send(board, frame, time=at, phy=phy, bad_fcs=bad_fcs)

    def run(self, until):
        sent = super().run(until)
        self.sent += sent
        return sent


def train(boards, built, folder):
    """Two epochs of ``fanin train --on`` this board, loading included, over a bad link; its ``run.json``."""
    host = UdpHost(SWITCH, [BoardAddress(built.control, ADDRESS)], (CONTROL_PORT, UDP_PORT))
    cluster = folder / "boards.toml"
    cluster.write_text(f'[[board]]\nhost = "{ADDRESS}"\nbuild = "{built.folder}"\n')
    with serving(World(boards, [host], link=BAD, seed=5)):
        command = f"train breast_cancer --on {cluster} --epochs 2 -o {folder / 'run'} --json"
        assert main(command.split()) == 0
    return json.loads((folder / "run" / "run.json").read_text())


def test_netlist_and_source_do_the_same_in_every_cycle_of_a_run(tmp_path):
    """What the source was given while it trained is given to the netlist: outputs change at the same times."""
    built = build("colorlight_5a75b", tmp_path / "build")
    configs = [built.config(routed=routed, ppm=70) for routed in (False, True)]
    ports = [name for name in configs[0].model.outputs if name != CLOCK]
    paths = [tmp_path / "source", tmp_path / "netlist"]

    with Recording([configs[0]], optimise="-Og") as source:
        source.trace(0, paths[0], ports)
        source.power_up()
        run = train(source, built, tmp_path)
    assert run["bit_exact"]
    assert run["retransmissions"] > 0
    assert any(bad for *_, bad in source.orders)

    with Boards([configs[1]], optimise="-Og") as netlist:
        netlist.trace(0, paths[1], ports)
        netlist.power_up()
        for at, frame, bad in source.orders:
            netlist.send(0, frame, time=at, bad_fcs=bad)
        sent = netlist.run(source.time)
    assert_equal(ports, [changes(path, len(ports)) for path in paths])
    assert sent == source.sent
