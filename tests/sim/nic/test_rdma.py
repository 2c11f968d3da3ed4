"""The host of a node of one-sided writes in RTL: what it gives the node, and in which order writes end."""

from pathlib import Path

from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Connection, Ending, Write
from fanin.sim.nic.address import Address
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.rdma import RdmaHosts
from fanin.sim.nic.rdma_settings import RdmaSettings
from fanin.sim.nic.stopping import Stop
from fanin.wire.ethernet import Endpoint

CONFIG = PRESETS["tiny"]
OWN, A, B = (Endpoint(0x02_00_00_00_00_00 + n, 0x0A_00_00_00 + n, 0xC000) for n in (1, 2, 3))


class FakeBoard:
    """Carries out programs as they come."""

    cycle = now = 0

    def run(self, node, program, then):
        then([])


class NotingDriver(RdmaDriver):
    """Notes each write that the node is given: its queue pair, the peer of that time, the address there."""

    def __init__(self, config):
        super().__init__(config)
        self.peers, self.written = {}, []

    def connect(self, index, connection, peer):
        self.peers[index] = peer
        return super().connect(index, connection, peer)

    def post(self, index, write):
        self.written.append((index, self.peers[index], write.remote))
        return super().post(index, write)


def test_writes_that_wait_for_room_end_with_the_connection_that_they_were_asked_for():
    settings = RdmaSettings(CONFIG, "a0", OWN, Path("/m"), 4096, 1024)
    hosts = RdmaHosts(FakeBoard(), settings, Address(OWN), Pace(1000), Stop(Path("/no-such")))
    hosts._driver = driver = NotingDriver(CONFIG)
    ended = []

    def connect(index, peer):
        hosts.connect(index, Connection(FIRST_QUEUE_PAIR, mtu=1024), peer, lambda: None)

    def post(index, number):
        hosts.post(index, Write(0, 0, number, 1, 1), lambda ending: ended.append((number, ending)))

    def completed(index, ending):
        fields = {"completed": 1, "completed_index": index, "completed_tag": 0, "ending": ending}
        hosts._end_write(driver.take_completion(), [driver.registers["completion"].pack(fields)])

    connect(0, A)
    connect(1, A)
    room = CONFIG.descriptors
    for number in range(room + 3):
        post(0, number)
    post(1, 50)  # of another queue pair, behind them
    connect(0, B)
    post(0, 99)
    assert driver.written == [(0, A, number) for number in range(room)]
    for number in range(room):
        assert ended == [(before, Ending.FLUSHED) for before in range(number)]
        completed(0, Ending.FLUSHED)
    assert ended == [(number, Ending.FLUSHED) for number in range(room + 3)]
    assert driver.written[room:] == [(1, A, 50), (0, B, 99)]
    completed(1, Ending.DONE)
    completed(0, Ending.DONE)
    assert ended[-2:] == [(50, Ending.DONE), (99, Ending.DONE)]
