"""``compressed``: what it sets, and what it refuses; connections of sockets with themselves."""

import socket

import pytest

from fanin.host import compressed
from fanin.host.sockets import refuse_self
from tests.fanin.host.self_connection import SelfConnecting


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_the_socket_asks_for_compression(kind):
    with socket.socket(socket.AF_INET, kind) as sock:
        assert compressed(sock) is sock
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x28


def test_segments_are_of_the_size_that_is_asked_for():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sock:
        compressed(sock, mss=1000)
        sock.connect(server.getsockname())
        found = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        assert found <= 1000
        assert found % 4 == 0  # TCP's options are whole words


@pytest.mark.parametrize("mss", [0, 84, 1001, 1446, 32_768])
def test_a_segment_that_is_no_whole_values_is_refused(mss):
    with socket.socket() as sock, pytest.raises(ValueError, match=f"mss must be .* not {mss}"):
        compressed(sock, mss=mss)
    assert sock.fileno() == -1


def test_other_sockets_are_refused():
    with socket.socket(socket.AF_INET6) as sock, pytest.raises(ValueError, match="AF_INET6"):
        compressed(sock)


def test_a_connection_with_itself_is_refused_and_leaves_its_port_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address) as connection:
            refuse_self(connection)
            assert connection.fileno() >= 0
    # Another port: the one above is not free at once, as its connection has ended in order.
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    connection = SelfConnecting()
    connection.connect(address)
    with pytest.raises(ConnectionRefusedError, match="Connection refused"):
        refuse_self(connection)
    assert connection.fileno() == -1
    with socket.socket() as listener:
        listener.bind(address)
