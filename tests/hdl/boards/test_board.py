"""The table of boards: each is complete, and its platform has what the top asks for."""

import pytest

from fanin.base.errors import InputError
from fanin.hdl.boards import top
from fanin.hdl.boards.board import BOARDS, Flow, find_board
from fanin.hdl.boards.identity import Identity, build_number
from fanin.hdl.boards.rgmii_pins import DELAY_STEPS, delay_steps
from fanin.job import worker_endpoint

OPEN = [name for name, board in BOARDS.items() if board.flow is Flow.OPEN]


@pytest.mark.parametrize("name", OPEN)
def test_an_open_board_has_a_clock_and_an_rgmii_port(name):
    platform = BOARDS[name].make_platform()
    port = platform.lookup("eth_rgmii", BOARDS[name].phy.port)
    pins = {ios.name: len(ios.ios[0].names) for ios in port.ios}
    assert pins["rx_data"] == pins["tx_data"] == 4
    assert {"rx_clk", "tx_clk", "rst", "mdc", "mdio"} <= set(pins)
    assert platform.default_clk_frequency in (25e6, 30e6, 100e6)


@pytest.mark.parametrize("name", OPEN)
def test_a_board_has_the_leds_that_its_page_says(name):
    platform = BOARDS[name].make_platform()
    assert BOARDS[name].leds == max(len(list(top.led_ports(platform, kind))) for kind in top.LED_RESOURCES)


def test_numbers_of_boards_differ():
    numbers = [board.number for board in BOARDS.values()]
    assert len(set(numbers)) == len(numbers)


def test_an_unknown_board_is_refused_with_those_there_are():
    with pytest.raises(InputError, match=r"no board 'ecpix'; there are colorlight_5a75b, .*ecpix5"):
        find_board("ecpix")


def test_a_delay_that_the_cell_has_not_is_refused():
    assert delay_steps(2.0) == 80
    assert delay_steps(0) == 0
    with pytest.raises(ValueError, match=r"delay must be 0 to 3\.175 ns, not 3\.2"):
        delay_steps((DELAY_STEPS + 1) * 0.025)


def test_an_identity_has_the_addresses_of_its_worker():
    board = find_board("ecpix5")
    identity = Identity.of(board, number=3, build=7)
    own = worker_endpoint(3)
    assert (identity.board, identity.build, identity.mac, identity.ip) == (board.number, 7, own.mac, own.ip)


def test_another_build_has_another_number():
    numbers = {build_number("a", 1), build_number("a", 2), build_number("b", 1)}
    assert len(numbers) == 3
    assert all(0 <= number < 1 << 32 for number in numbers)
    assert build_number("a", 1) in numbers
