"""Damaged requests to ``fanin watch``: each has a legal answer or none, and all others have the page."""

import contextlib
import http.client
import io
import socket
from urllib.parse import urlsplit

import pytest

from fanin.cli.watch.server import CONNECTIONS
from tests.fanin.cli.watch.served import ask, serving
from tests.fuzzing import Memory, Mutator, lengths, new_random, speak, within

ANSWER = 5.0  # seconds for a browser's request among damaged ones
GROWTH = 60_000  # kB
LEGAL = {200, 400, 403, 404, 405, 414, 431, 501, 505}
BODIES = (b"<", b"{", b"another host's name", b"not found", b"GET alone")
HELD = 10  # connections that wait for more


@pytest.fixture
def url(tmp_path):
    """Of a folder whose run has ended, beside a secret."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    (folder / "report.html").write_text("<p>the report</p>")
    (tmp_path / "secret").write_text("the key")
    with serving(folder) as address:
        yield address


def _requests(where):
    ours = f"Host: {where}\r\n"
    return [
        text.encode()
        for text in (
            f"GET / HTTP/1.1\r\n{ours}\r\n",
            f"GET /progress HTTP/1.1\r\n{ours}Accept: */*\r\nConnection: keep-alive\r\n\r\n",
            f"GET /report HTTP/1.0\r\n{ours}\r\n",
            f"HEAD /report/../../secret HTTP/1.1\r\n{ours}Expect: 100-continue\r\n\r\n",
            f"POST / HTTP/1.1\r\n{ours}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "GET /\r\n",
            "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        )
    ]


def _check(text):
    """What a connection was sent is empty, or one answer of a legal status, which may be cut."""
    if not text:
        return
    assert b"the key" not in text
    begin = text.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if not begin.startswith(b"HTTP/"):
        assert begin.lstrip().startswith(BODIES)  # of a request of HTTP/0.9
        return
    status = int(begin.split(b" ", 2)[1])
    assert status in LEGAL, text[:200]


def _received(connection):
    text = io.BytesIO()
    with contextlib.suppress(OSError):
        while piece := connection.recv(1 << 16):
            text.write(piece)
    return text.getvalue()


@lengths(rounds=80)
def test_damaged_requests_hold_up_no_browser(url, length, capfd):
    rng = new_random()
    where = urlsplit(url)
    requests = Mutator(rng, _requests(where.netloc), longest=80_000)
    page = ask(url, "/")[2]
    memory, held = Memory(), []
    for number in length.each():
        one = socket.create_connection((where.hostname, where.port), ANSWER)
        one.settimeout(0.01)
        data = requests.message()
        if rng.random() < 0.02:  # as many headers as there may be, each as long
            data = _requests(where.netloc)[0][:-2] + b"x: " + rng.choice((b"y" * 65_000, b"y\r\nx: " * 40_000))
        speak(one, data, rng, pause=0)
        if one.fileno() >= 0:
            held.append(one)
        if len(held) > HELD:
            other = held.pop(rng.randrange(len(held)))
            _check(_received(other))
            other.close()
        if number % 40 == 0:
            with within(ANSWER):
                assert ask(url, "/")[::2] == (200, page)
    for one in held:
        one.close()
    assert memory.growth < GROWTH
    assert ask(url, "/report")[::2] == (200, b"<p>the report</p>")
    assert capfd.readouterr().err == ""


@lengths(rounds=1)
def test_the_largest_requests_on_all_connections_take_bounded_memory(url, length):
    where = urlsplit(url)
    header = b"x: " + b"y" * 60_000 + b"\r\n"
    memory = Memory()
    for _ in length.each():
        with contextlib.ExitStack() as opened:
            for _ in range(CONNECTIONS):
                one = opened.enter_context(socket.create_connection((where.hostname, where.port), ANSWER))
                one.settimeout(0.2)
                with contextlib.suppress(OSError):
                    one.sendall(b"GET / HTTP/1.1\r\n")
                    for _ in range(95):
                        one.sendall(header)
            with within(ANSWER), contextlib.suppress(http.client.HTTPException):
                assert ask(url, "/")[0] == 200
    assert memory.growth < GROWTH
