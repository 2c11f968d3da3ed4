"""The client against a board on a real socket: what is lost, repeated and late, two hosts, and who gives up."""

import random
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from ipaddress import IPv4Address

import pytest

from fanin.base.errors import InputError
from fanin.glm.driver import NodeDriver
from fanin.glm.facts import PRESETS
from fanin.hdl.bus.register_map import Access, Field, Register, RegisterMap
from fanin.hdl.glm.node_registers import node_constants, node_registers
from fanin.host.board import (
    OFFERS,
    BoardClient,
    BoardError,
    BoardHeld,
    BoardLost,
    BusFault,
    UdpChannel,
    WrongBoard,
    poll_field,
)
from fanin.host.driver import Batch, Operation
from fanin.wire.control import (
    ABOUT_WORDS,
    MAX_DUMP,
    MAX_LOAD,
    MAX_OPERATIONS,
    WRITE_BIT,
    ControlFrame,
    Kind,
    Status,
    decode_control,
    encode_control,
)
from tests.fanin.host.fake_board import fake_board
from tests.support import new_seed

WINDOW = 0x100
REGISTERS = RegisterMap((Register("control", Access.RW, "x", (Field("go", 1, "x"), Field("busy", 7, "x"))),))


class Bus(dict):
    """Words, and a window that counts: each read gives the next number, each write is kept."""

    def __init__(self):
        self.reads = 0
        self.written = []

    def __getitem__(self, address):
        if address == WINDOW:
            self.reads += 1
            return self.reads
        return super().__getitem__(address)

    def __setitem__(self, address, data):
        if address == WINDOW:
            self.written.append(data)
        else:
            super().__setitem__(address, data)


PATIENT = 0.25  # seconds, where a test counts what is sent again: a loaded machine answers within it


def client(fake, **options):
    return BoardClient("127.0.0.1", fake.port, **{"timeout": 0.01, **options})


def test_every_access_is_carried_out_once_whatever_the_network_does():
    """20 % of all datagrams are lost, in each direction; others come twice, or late: behind later ones."""
    seed = new_seed()
    rng = random.Random(seed)
    bus, written, reads = Bus(), [], 0
    with fake_board(bus, loss=0.2, twice=0.2, late=0.3, seed=seed) as board, client(board, tries=60) as host:
        for _ in range(40):
            operations = []
            for _ in range(rng.choice((1, 2, 5, MAX_OPERATIONS, MAX_OPERATIONS + 1))):
                data = rng.choice((None, rng.getrandbits(32)))
                operations.append(Operation(WINDOW, data))
            written += [data for _, data in operations if data is not None]
            count = sum(data is None for _, data in operations)
            assert host.operate(operations) == list(range(reads + 1, reads + count + 1))
            reads += count
        assert host.resent > 10
    assert (bus.written, bus.reads) == (written, reads)
    assert board.model.counters["repeats"] > 0


def test_memories_are_loaded_and_dumped_in_frames_of_any_number():
    seed = new_seed()
    rng = random.Random(seed)
    bus = Bus()
    with fake_board(bus, loss=0.1, seed=seed) as board, client(board, tries=60) as host:
        for words in (1, MAX_LOAD, MAX_LOAD + 1, 2 * MAX_DUMP + 5):
            data = [rng.getrandbits(32) for _ in range(words)]
            host.load(0x1000, data)
            assert [bus[0x1000 + 4 * n] for n in range(words)] == data
            assert host.dump(0x1000, words) == data
        assert host.dump(0x1000, 0) == []


def test_a_load_that_does_not_hold_is_an_error():
    class Stuck(Bus):
        def __setitem__(self, address, data):
            super().__setitem__(address, data | 4 if address == 0x1008 else data)

    with fake_board(Stuck()) as board, client(board) as host:
        host.load(0x1000, [1, 2])
        with pytest.raises(BoardError, match=r"0x1000 to 0x100c does not hold what was loaded"):
            host.load(0x1000, [1, 2, 3])


def test_drivers_work_unchanged():
    config = PRESETS["tiny"]
    registers = node_registers(config)
    driver = NodeDriver(config, base=0x2000)
    bus, constants = Bus(), node_constants(config)
    for register in registers.registers:
        if register.access is Access.RO:
            fields = {f.name: constants.get(f.name, 0) for f in register.parts}
            bus[0x2000 + registers.offset(register.name)] = register.pack(fields)
    with fake_board(bus) as board, client(board) as host:
        driver.check_identity(host.run(driver.identify()))
        bus[0x2000 + registers.offset("depth")] += 1
        with pytest.raises(ValueError, match="the node's depth must be"):
            driver.check_identity(host.run(driver.identify()))


def test_a_second_host_is_told_who_holds_the_board():
    with fake_board(Bus()) as board, client(board) as first, closing(client(board)) as second:
        with pytest.raises(BoardHeld, match=r"^board 127\.0\.0\.1: 127\.0\.0\.1 holds it$"):
            second.acquire()
        assert second.hello().holder == IPv4Address("127.0.0.1")
        first.write32(4, 5)
        first.release()
        assert second.acquire().holder is None
        with pytest.raises(BoardHeld):
            first.read32(4)
        second.release()
        assert first.read32(4) == 5  # by a new lease
        first.release()
        first.release()


def test_a_host_that_was_silent_too_long_loses_the_board_to_another():
    with fake_board(Bus()) as board, closing(client(board)) as first, closing(client(board)) as second:
        first.acquire()
        board.now += board.model.lease_time - 1
        first.write32(4, 5)
        board.now += board.model.lease_time - 1
        with pytest.raises(BoardHeld):
            second.acquire()
        board.now += 1
        second.acquire()
        second.release()
        with pytest.raises(BoardLost, match="it was reset, or heard nothing for too long"):
            first.read32(4)


def test_a_board_that_was_reset_is_noticed():
    with fake_board(Bus()) as board, closing(client(board)) as host:
        host.acquire()
        host.write32(4, 5)
        board.reset()
        with pytest.raises(BoardLost, match="it was reset"):
            host.write32(4, 6)
        assert board.model.bus[4] == 5


class Before(UdpChannel):
    """A channel that does something before it sends a request, and may lose the reply."""

    def __init__(self, board, act):
        super().__init__("127.0.0.1", board.port)
        self._act = act

    def exchange(self, payload, timeout):
        lost = self._act(decode_control(payload))
        for reply in super().exchange(payload, timeout):
            if not lost:
                yield reply


class Answers:
    """A channel to something at a board's address: ``answer`` gives each request's status and words."""

    local_host = remote_host = "127.0.0.1"

    def __init__(self, answer):
        self._answer = answer

    def exchange(self, payload, timeout):
        request = decode_control(payload)
        status, words = self._answer(request)
        yield encode_control(
            ControlFrame(request.kind, request.lease, request.sequence, len(words), words, status=status)
        )

    def close(self):
        pass


def test_a_refused_hello_ends_with_one_error():
    client = BoardClient("there", channel=Answers(lambda request: (Status.HELD, ())))
    for call in (client.hello, client.acquire):
        with pytest.raises(BoardHeld, match="board there: another host holds it"):
            call()


def test_an_offer_of_no_lease_is_not_taken():
    words = (0,) * ABOUT_WORDS
    client = BoardClient("there", timeout=1e-4, channel=Answers(lambda request: (Status.DONE, words)))
    with pytest.raises(BoardLost, match=f"ended its {OFFERS} offers to us"):
        client.acquire()


def first_requests(act, times):
    """An action before each of so many first requests of a lease."""
    left = [times]

    def before(request):
        if request.kind != Kind.HELLO and request.sequence == 1 and left[0]:
            left[0] -= 1
            return act()
        return False

    return before


@pytest.mark.parametrize("act", ["hello", "reset"])
@pytest.mark.parametrize("times", [1, 3, OFFERS - 1])
def test_an_offer_that_ended_before_it_was_taken_is_asked_for_again(act, times):
    with fake_board(Bus()) as board, closing(client(board)) as other:
        do = {"hello": other.hello, "reset": board.reset}[act]
        channel = Before(board, first_requests(lambda: do() and False, times))
        with client(board, channel=channel) as host:
            assert board.model.holder(0) == 0x7F00_0001
            host.write32(4, 5)
        assert board.model.counters["refused"] == times


def test_a_board_whose_offers_all_end_is_given_up_in_one_line():
    with fake_board(Bus()) as board, closing(client(board)) as other:
        channel = Before(board, first_requests(lambda: other.hello() and False, 1000))
        error = r"^board 127\.0\.0\.1: other hosts' hellos ended its 20 offers to us; .*$"
        with closing(client(board, channel=channel)) as host, pytest.raises(BoardLost, match=error):
            host.acquire()
        assert board.model.holder(0) == 0
        assert board.model.counters["refused"] == OFFERS


def test_a_first_request_whose_reply_is_lost_is_sent_again_under_the_same_lease():
    with fake_board(Bus()) as board:
        lossy = Before(board, first_requests(lambda: True, 2))
        with client(board, channel=lossy, timeout=PATIENT) as host:
            assert host.resent == 2
        assert board.model.counters == {"requests": 3, "repeats": 2}  # hello, first request, release


def test_hosts_that_want_a_board_at_once_get_it_one_after_the_other():
    """Each adds to a word that it has read before: no sum is lost."""
    rounds, hosts = 5, 6
    with fake_board(Bus()) as board:
        board.model.bus[4] = 0

        def work():
            for _ in range(rounds):
                while True:
                    try:
                        with client(board) as host:
                            host.write32(4, host.read32(4) + 1)
                        break
                    except BoardHeld:
                        time.sleep(0.002)

        with ThreadPoolExecutor(hosts) as pool:
            for done in [pool.submit(work) for _ in range(hosts)]:
                done.result()
        assert board.model.bus[4] == rounds * hosts
        assert board.model.holder(0) == 0


def test_a_lease_that_another_address_has_read_is_of_no_use_there():
    with fake_board(Bus()) as board, client(board) as host:
        host.write32(4, 5)
        stolen = [
            ControlFrame(Kind.ACCESS, host._lease, host._sequence + 1, 1, (4 | WRITE_BIT, 6)),
            ControlFrame(Kind.DUMP, host._lease, host._sequence, 364, (4,)),
            ControlFrame(Kind.RELEASE, host._lease, host._sequence + 1),
        ]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
            thief.bind(("127.0.0.9", 0))
            thief.settimeout(0.05)
            for request in stolen:
                thief.sendto(encode_control(request), ("127.0.0.1", board.port))
            with pytest.raises(TimeoutError):
                thief.recv(65536)
        assert host.read32(4) == 5
        assert board.model.counters["refused"] == len(stolen)


def test_a_board_that_is_let_go_just_then_was_another_hosts():
    with fake_board(Bus()) as board, client(board) as first:
        hellos = []

        def before(request):
            hellos.append(request.kind == Kind.HELLO)
            if sum(hellos) == 2:
                first.release()
            return False

        error = r"^board 127\.0\.0\.1: another host holds it$"
        with (
            closing(client(board, channel=Before(board, before))) as second,
            pytest.raises(BoardHeld, match=error),
        ):
            second.acquire()
        assert hellos == [True, False, True]


def test_a_board_of_another_protocol_version_is_named_with_both():
    with fake_board(Bus()) as board, closing(client(board)) as host:
        board.model.control = lambda payload, *_: payload[:2] + b"\x10\x03" + payload[4:12] + bytes(2)
        error = r"^board 127\.0\.0\.1: speaks version 1 of the control protocol, this host version 2; .*$"
        with pytest.raises(BoardError, match=error):
            host.acquire()


def test_a_board_that_falls_silent_is_given_up():
    with fake_board(Bus()) as board, client(board, tries=100) as host:  # a busy machine answers late
        host.write32(4, 5)
        board.silent, host.tries = True, 3
        with pytest.raises(BoardLost, match=r"^board 127\.0\.0\.1: no answer to 3 requests in 0\.03 s$"):
            host.write32(4, 6)
        board.silent = False


def test_one_who_holds_the_board_may_acquire_it_again():
    with fake_board({4: 5}) as board, client(board) as host:
        for _ in range(2):
            before = board.model.lease
            host.acquire()
            assert board.model.lease != before
            assert host.read32(4) == 5
        board.reset()
        host.acquire()
        assert host.read32(4) == 5


def test_an_interrupt_in_the_first_request_leaves_the_board_free(monkeypatch):
    def interrupt(host, operations):
        asked(host, operations)
        raise KeyboardInterrupt

    asked = BoardClient.operate
    with fake_board({}) as board:
        monkeypatch.setattr(BoardClient, "operate", interrupt)
        with pytest.raises(KeyboardInterrupt), client(board):
            pass
        assert board.model.lease
        assert board.model.holder(board.now) == 0


def test_a_board_that_was_lost_is_released_once_and_not_waited_for():
    with fake_board(Bus()) as board, closing(client(board, tries=20)) as host:
        host.write32(4, 5)
        board.silent = True
        with pytest.raises(BoardLost):
            host.write32(4, 6)
        with pytest.raises(BoardLost, match="no answer to 1 requests"):
            host.release()
        assert board.model.holder(0) == 0


def test_where_nobody_listens_is_no_board():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    host = BoardClient("127.0.0.1", port, timeout=0.01, tries=2)
    with pytest.raises(BoardLost, match="no answer to 2 requests"):
        host.hello()
    host.close()


@pytest.mark.parametrize(("name", "other"), [("board", 6), ("version", 2), ("build", 8)])
def test_another_board_than_expected_is_refused_before_it_is_held(name, other):
    right = {"board": 5, "version": 1, "build": 7}
    with fake_board(Bus()) as board:
        with client(board, **right):
            pass
        with pytest.raises(WrongBoard, match=rf"its {name} must be {other:#x}, not {right[name]:#x}"):
            client(board, **right | {name: other}).__enter__()
        assert board.model.holder(0) == 0


def test_a_bus_error_names_the_address_and_the_board_goes_on():
    with fake_board(Bus()) as board, client(board) as host:
        with pytest.raises(BusFault, match=r"^board 127\.0\.0\.1: its bus refuses address 0x00000040$"):
            host.operate([Operation(4, 1), Operation(0x40), Operation(4, 2)])
        assert host.read32(4) == 1


def test_a_field_is_awaited_for_a_time():
    bus = Bus()
    bus[0x10] = 6 << 1
    with fake_board(bus) as board, client(board) as host:
        poll_field(host, REGISTERS, "control", "busy", 6, timeout=0, base=0x10)
        with pytest.raises(BoardError, match=r"busy is still 6, not 0, after 0\.01 s"):
            poll_field(host, REGISTERS, "control", "busy", 0, timeout=0.01, base=0x10)
        assert host.run(Batch(REGISTERS, base=0x10).read("control")) == [{"go": 0, "busy": 6}]


def test_an_error_ends_the_work_and_lets_the_board_go():
    with fake_board(Bus()) as board:
        held = []

        def fail():
            held.append(board.model.holder(0))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), client(board):
            fail()
        assert held == [0x7F00_0001]
        assert board.model.holder(0) == 0


def test_a_name_that_is_none_is_bad_input():
    with pytest.raises(InputError, match=r"^board no\.such\.host\.invalid: "):
        BoardClient("no.such.host.invalid")


@pytest.mark.parametrize("options", [{"tries": 0}, {"timeout": 0}])
def test_bad_parameters(options):
    with pytest.raises(ValueError, match="tries and timeout must be above 0"):
        BoardClient("127.0.0.1", **options)
