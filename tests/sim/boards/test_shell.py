"""A placed and routed board without a node, reached as a real one is: ARP, echo, control, scapy, the kernel.

Place and route takes minutes, and is done once for all tests.
"""

import pickle
import random
from dataclasses import replace

import pytest

from fanin.host.board import BoardClient
from fanin.sim.boards.board import BoardConfig, Boards, Clock
from fanin.sim.boards.crossings import check_crossings
from fanin.sim.boards.hosts import Listening, UdpHost
from fanin.sim.boards.model import routed_model, source_model
from fanin.sim.boards.world import World
from fanin.sim.network import LinkConfig
from fanin.wire.arp import Operation, encode_arp
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import Endpoint
from tests.sim.boards.build import place
from tests.sim.boards.compare import assert_equal, traces
from tests.sim.boards.designs import PHY
from tests.sim.boards.shell import MEMORY, SIZE, Shell
from tests.sim.boards.test_world import in_namespace, serving

pytestmark = [pytest.mark.slow, pytest.mark.verilator]

BOARD = Endpoint(0x02FA17000001, 0x0A4D0002, CONTROL_PORT)
HOST = Endpoint(0x02FA170000FE, 0x0A4D0001)
STARTED = 5_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shell")
    place(Shell(mac=BOARD.mac, ip=BOARD.ip), folder)
    return folder


def configs(models, *ppm):
    """Boards with these models whose PHYs are off by ``ppm``, in any phase."""
    phys = [replace(PHY, ppm=off, phase_ps=1234 + 777 * number) for number, off in enumerate(ppm)]
    clock = {"clk25_0": Clock.of_mhz(25)}
    return [BoardConfig(model, clock, [phy]) for model, phy in zip(models, phys, strict=True)]


def test_every_crossing_is_safe(folder):
    for name in ("top.json", "routed.json"):
        report = check_crossings(folder / name)
        assert len(report.clocks) == 3
        assert len(report.crossings) > 100


def test_netlist_and_source_do_the_same_in_every_cycle(folder, tmp_path):
    models = [routed_model(folder / "routed.json"), source_model(folder / "top.il")]
    draw = random.Random(7)
    asks = encode_arp(Operation.REQUEST, sender=HOST, target=Endpoint(0, BOARD.ip))

    def stimulus(boards):
        for frame in (asks, draw.randbytes(300), asks):
            boards.send(0, frame, time=STARTED)

    both = configs(models, 150, 150)
    both[1] = replace(both[1], phys=both[0].phys)
    found = traces(both, tmp_path, stimulus, STARTED + 15_000_000)
    assert_equal(models, found)
    sent = found[0][:, 1 + models[0].outputs.index("rgmii_0_tx_ctl")]
    assert set(sent) == {0, 1}


def test_a_board_client_loads_a_memory_over_a_bad_link(folder):
    """By real UDP sockets; one frame in ten is lost, others come twice or late."""
    link = LinkConfig(delay_ns=500, gbps=1, drop=0.1, duplicate=0.1, reorder=0.1)
    words = [random.Random(8).getrandbits(32) for _ in range(SIZE // 4)]
    host = UdpHost(HOST, [Listening(BOARD, "127.0.72.2")], [CONTROL_PORT])
    with Boards(configs([routed_model(folder / "routed.json")], -80), optimise="-Og") as boards:
        boards.run(STARTED)
        with serving(World(boards, [host], link=link, seed=9)):
            client = BoardClient("127.0.72.2", timeout=0.5, tries=50)
            assert client.hello().holder is None
            client.acquire()
            client.load(MEMORY, words)
            assert list(client.dump(MEMORY, len(words))) == words
            assert client.resent > 0
            client.release()
            client.close()


IN_A_NAMESPACE = """
import logging, pickle, subprocess, sys, threading
logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.all import ARP, Ether, ICMP, IP, Raw, srp1
from fanin.host.board import BoardClient
from fanin.sim.boards.board import Boards
from fanin.sim.boards.hosts import TapHost
from fanin.sim.boards.world import World
tap = TapHost("fanin0")
for command in ("addr add 10.77.0.1/24", "link set up"):
    subprocess.run(["ip", *command.split(), "dev", "fanin0"], check=True)
with open(sys.argv[1], "rb") as file:
    boards = Boards(pickle.load(file), optimise="-Og")
boards.run(5_000_000)
world, ended = World(boards, [tap]), threading.Event()
thread = threading.Thread(target=world.serve, args=(ended.is_set,), daemon=True)
thread.start()
asks = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst="10.77.0.2")
print(srp1(asks, iface="fanin0", timeout=20, verbose=False)[ARP].hwsrc)
for size in (1, 56, 1400):
    data = bytes(index % 251 for index in range(size))
    ip = IP(src="10.77.0.1", dst="10.77.0.2")
    asks = Ether(dst="02:fa:17:00:00:01") / ip / ICMP(id=7, seq=size) / Raw(data)
    answer = srp1(asks, iface="fanin0", timeout=20, verbose=False)
    print(answer[ICMP].type, answer[ICMP].seq, answer[Raw].load[:size] == data)
client = BoardClient("10.77.0.2", timeout=2)
client.acquire()
client.load(0x1000_0000, range(100))
print(list(client.dump(0x1000_0000, 3)))
client.release()
client.close()
ended.set()
thread.join()
world.close()
boards.close()
"""


def test_scapy_and_the_kernel_reach_the_board_through_a_tap_device(folder, tmp_path):
    path = tmp_path / "configs"
    path.write_bytes(pickle.dumps(configs([routed_model(folder / "routed.json")], 40)))
    said = in_namespace(IN_A_NAMESPACE, str(path)).splitlines()
    assert said == ["02:fa:17:00:00:01", "0 1 True", "0 56 True", "0 1400 True", "[0, 1, 2]"]
