"""``compressed``: what it sets, and what it refuses."""

import socket

import pytest

from fanin.host import compressed


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
