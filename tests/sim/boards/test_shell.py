"""A placed and routed board without a node, reached as a real one is: ARP, echo, control, scapy, the kernel.

It is what ``fanin board build`` makes of the shell. Place and route takes a minute or more, and is done once
for all tests.
"""

import pickle
import random
import shutil
import subprocess
from contextlib import closing
from ipaddress import IPv4Address

import pytest

from fanin.base.tools import program
from fanin.boards.run.folder import BITSTREAM_FILE
from fanin.cli.main import main
from fanin.hdl.boards.build import NETLIST, ROUTED
from fanin.hdl.boards.memory_map import BOARD
from fanin.hdl.boards.registers import IDENTITY, board_registers
from fanin.hdl.boards.top import PHY_RESET_MS
from fanin.host.board import BoardClient
from fanin.host.driver import Batch
from fanin.job import SWITCH, worker_endpoint
from fanin.link import LinkConfig
from fanin.sim.boards.board import STARTED_PS, Boards
from fanin.sim.boards.crossings import check_crossings
from fanin.sim.boards.hosts import BoardAddress, UdpHost
from fanin.sim.boards.world import World
from fanin.wire.arp import Operation, encode_arp
from fanin.wire.control import CONTROL_PORT
from fanin.wire.ethernet import Endpoint
from tests.sim.boards.builds import Built, build
from tests.sim.boards.compare import assert_equal, traces
from tests.sim.boards.test_world import in_namespace, serving

pytestmark = [pytest.mark.slow, pytest.mark.verilator]

NUMBER, OTHER = 1, 6
UP_PS = PHY_RESET_MS * 10**9 + 2 * STARTED_PS
ADDRESSES = board_registers().offset("own_mac")
LOADS = 200


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    command = f"colorlight_5a75b --node shell --number {NUMBER}"
    return build(command, tmp_path_factory.mktemp("shell") / "build")


def addresses(board):
    """The words of its registers ``own_mac`` and ``own_ip``: what a shell has in the place of a memory."""
    return [board.mac & 0xFFFF_FFFF, board.mac >> 32, board.ip]


def counted(client):
    """How many requests the board has carried out, and how many it has answered again."""
    batch = Batch(board_registers(), base=BOARD).read("control_requests").read("control_repeats")
    return client.run(batch)


def test_its_number_decides_its_addresses(shell):
    own = worker_endpoint(NUMBER)
    assert shell.control == Endpoint(own.mac, own.ip, CONTROL_PORT)


def test_the_phy_is_reset_for_20_ms(shell):
    asks = encode_arp(Operation.REQUEST, sender=SWITCH, target=Endpoint(0, shell.control.ip))
    with Boards([shell.config(routed=False)], optimise="-Og") as boards:
        for time in (0, STARTED_PS, PHY_RESET_MS * 10**9 - STARTED_PS):
            boards.send(0, asks, time=time)
        boards.power_up()
        assert PHY_RESET_MS * 10**9 <= boards.time < PHY_RESET_MS * 10**9 + 3 * STARTED_PS
        assert boards.lost(0) == (3, 0)
        boards.send(0, asks)
        (answer,) = boards.run(boards.time + STARTED_PS)
        assert answer.data[:6] == asks[6:12]
        assert boards.lost(0) == (3, 0)


def test_every_crossing_is_safe(shell):
    for name in (NETLIST, ROUTED):
        report = check_crossings(shell.project / name)
        assert len(report.clocks) == 3
        assert len(report.crossings) > 100


def unpacked(bitstream, folder):
    """What a bitstream says, by Project Trellis: each line with the tile that it is of."""
    shutil.copy(bitstream, folder / "top.bit")
    unpack = program("yowasp-ecpunpack", "pip install 'fanin[boards]'")
    command = [unpack, "--input", "top.bit", "--textcfg", "top.txt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    lines, tile = set(), ""
    for line in (folder / "top.txt").read_text().splitlines():
        tile = line if line.startswith(".") else tile
        lines.add((tile, line))
    return lines


def test_a_renumbered_board_differs_in_its_addresses_alone_and_answers_there(shell, tmp_path):
    other = Built(tmp_path / "other")
    assert main(["board", "renumber", str(shell.folder), str(OTHER), "-o", str(other.folder)]) == 0
    own = worker_endpoint(OTHER)
    assert other.control == Endpoint(own.mac, own.ip, CONTROL_PORT)
    was, now = (unpacked(of.folder / BITSTREAM_FILE, tmp_path) for of in (shell, other))
    changed = was ^ now
    turned = (own.mac ^ shell.control.mac).bit_count() + (own.ip ^ shell.control.ip).bit_count()
    assert len({(tile, line.rpartition(" ")[0]) for tile, line in changed}) == turned
    assert all(".REGSET " in line for _, line in changed)

    asks = [
        encode_arp(Operation.REQUEST, sender=SWITCH, target=Endpoint(0, of.control.ip)) for of in (shell, other)
    ]
    with Boards([other.config()], optimise="-Og") as boards:
        boards.power_up()
        for frame in asks:
            boards.send(0, frame)
        (answer,) = boards.run(boards.time + STARTED_PS)
    assert int.from_bytes(answer.data[6:12], "big") == own.mac


def test_netlist_and_source_do_the_same_in_every_cycle(shell, tmp_path):
    both = [shell.config(routed=routed, ppm=150) for routed in (True, False)]
    outputs = both[0].model.outputs
    draw = random.Random(7)
    asks = encode_arp(Operation.REQUEST, sender=SWITCH, target=Endpoint(0, shell.control.ip))

    def stimulus(boards):
        boards.power_up()
        for frame in (asks, draw.randbytes(300), asks):
            boards.send(0, frame)

    found = traces(both, tmp_path, stimulus, UP_PS + 15_000_000)
    assert_equal(outputs, found)
    sent = found[0][:, 1 + outputs.index("eth_rgmii_0_tx_ctl")]
    assert set(sent) == {0, 1}


def test_a_board_client_loads_registers_over_a_bad_link(shell):
    """By real UDP sockets; one frame in ten is lost, others come twice or late. None is carried out twice."""
    link = LinkConfig(delay_ns=500, gbps=1, drop=0.1, duplicate=0.1, reorder=0.1)
    host = UdpHost(SWITCH, [BoardAddress(shell.control, "127.0.72.2")], [CONTROL_PORT])
    with Boards([shell.config(ppm=-80)], optimise="-Og") as boards:
        boards.power_up()
        with (
            serving(World(boards, [host], link=link, seed=9)),
            closing(BoardClient("127.0.72.2", timeout=0.5, tries=50)) as client,
        ):
            assert client.hello().holder is None
            client.acquire()
            before, _ = counted(client)
            for _ in range(LOADS // 2):
                client.load(BOARD + ADDRESSES, addresses(shell.control))  # and its checksum
            assert client.dump(BOARD + ADDRESSES, 3) == addresses(shell.control)
            requests, repeats = counted(client)
            assert requests - before == LOADS + 2  # with the dump and the first reading
            assert client.resent > 0
            assert repeats > 0
            client.release()


IN_A_NAMESPACE = """
import logging, pickle, subprocess, sys, threading
logging.getLogger("scapy.runtime").setLevel(logging.ERROR)
from scapy.all import ARP, Ether, ICMP, IP, Raw, srp1
from fanin.host.board import BoardClient
from fanin.sim.boards.board import Boards
from fanin.sim.boards.hosts import TapHost
from fanin.sim.boards.world import World
path, mac, own, at, *words = sys.argv[1:]
at, words = int(at), list(map(int, words))
tap = TapHost("fanin0")
for command in ("addr add 10.0.0.254/24", "link set up"):
    subprocess.run(["ip", *command.split(), "dev", "fanin0"], check=True)
with open(path, "rb") as file:
    boards = Boards(pickle.load(file), optimise="-Og")
boards.power_up()
world, ended = World(boards, [tap]), threading.Event()
thread = threading.Thread(target=world.serve, args=(ended.is_set,), daemon=True)
thread.start()
asks = Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(pdst=own)
print(srp1(asks, iface="fanin0", timeout=20, verbose=False)[ARP].hwsrc)
for size in (1, 56, 1400):
    data = bytes(index % 251 for index in range(size))
    ip = IP(src="10.0.0.254", dst=own)
    asks = Ether(dst=mac) / ip / ICMP(id=7, seq=size) / Raw(data)
    answer = srp1(asks, iface="fanin0", timeout=20, verbose=False)
    print(answer[ICMP].type, answer[ICMP].seq, answer[Raw].load[:size] == data)
client = BoardClient(own, timeout=2)
client.acquire()
client.load(at, words)
print(client.dump(at, len(words)) == words, hex(client.read32(0x0100_0000)))
client.release()
client.close()
ended.set()
thread.join()
world.close()
boards.close()
"""


@pytest.mark.needs("tap")
def test_scapy_and_the_kernel_reach_the_board_through_a_tap_device(shell, tmp_path):
    path, own = tmp_path / "configs", shell.control
    path.write_bytes(pickle.dumps([shell.config(ppm=40)]))
    mac = own.mac.to_bytes(6, "big").hex(":")
    words = map(str, [BOARD + ADDRESSES, *addresses(own)])
    said = in_namespace(IN_A_NAMESPACE, str(path), mac, str(IPv4Address(own.ip)), *words).splitlines()
    assert said == [mac, "0 1 True", "0 56 True", "0 1400 True", f"True {IDENTITY:#x}"]
