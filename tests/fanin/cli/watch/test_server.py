"""Who gets what from ``fanin watch``: a page, its numbers and reports, under its own name alone."""

import contextlib
import json
import os
import socket
import time
import tracemalloc
from urllib.parse import urlsplit

import pytest

from fanin.base.scratch import LIVE_FILE
from fanin.cli.main import main
from fanin.cli.watch import server, state
from fanin.cli.watch.server import CONNECTIONS, REQUEST_BYTES
from fanin.runs.live import LiveFile
from tests.fanin.cli.watch.served import ask, command, interrupt, serving

METHODS = ("HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
ELSEWHERE = (
    "evil.example",
    "127.0.0.1",
    "localhost",
    "127.0.0.1:1",
    "0.0.0.0:{port}",
    "127.0.0.1:{port}.evil.example",
)
FILES = ("run.json", "model.npz", "frames.pcap", ".fanin-live.json", "report.html")


@pytest.fixture
def ended(tmp_path):
    """A folder of a run that has ended, with a secret beside it."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text("{}")
    (folder / ".fanin-live.json").unlink()
    (folder / "report.html").write_text("<p>the report</p>")
    (tmp_path / "secret").write_text("secret")
    return folder


@pytest.fixture
def url(ended):
    with serving(ended) as address:
        yield address


def test_it_has_a_page_numbers_and_a_report(url):
    status, headers, page = ask(url, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b'fetch("/progress")' in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    status, headers, body = ask(url, "/progress")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert b'"ended"' in body
    status, headers, body = ask(url, "/report")
    assert (status, body) == (200, b"<p>the report</p>")
    assert headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        *(f"/{name}" for name in FILES),
        "/../secret",
        "/report/../../secret",
        "/%2e%2e/secret",
        "//secret",
        "/report/",
        "/report/0",
        "/report?x",
        "/progress/run.json",
        "/./",
        "secret",
        "http://evil.example/",
    ],
)
def test_nothing_else_is_there(url, path):
    status, headers, body = ask(url, path)
    assert (status, body) == (404, b"not found\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("method", METHODS)
def test_it_is_asked_with_get_alone(url, method):
    status, headers, _ = ask(url, "/", method=method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("host", ELSEWHERE)
@pytest.mark.parametrize("path", ["/", "/progress", "/report", "/other"])
def test_another_name_is_refused(url, host, path):
    assert ask(url, path, host=host.format(port=urlsplit(url).port))[::2] == (403, b"another host's name\n")


def test_localhost_is_a_name_of_it(url):
    assert ask(url, "/report", host=f"localhost:{urlsplit(url).port}")[0] == 200


def connected(stack, url):
    where = urlsplit(url)
    return stack.enter_context(socket.create_connection((where.hostname, where.port), 5))


def drip(stream):
    """A request that never comes to its end, a byte at a time."""
    for _ in range(500):
        stream.sendall(b"G")
        time.sleep(0.01)


def test_a_page_is_there_whoever_holds_connections(url):
    with contextlib.ExitStack() as stack:
        silent = [connected(stack, url) for _ in range(3 * CONNECTIONS)]
        assert ask(url, "/")[0] == 200
        assert silent[0].recv(1) == b""  # ended by a later one


def test_a_request_that_takes_its_time_is_ended(url, monkeypatch):
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with contextlib.ExitStack() as stack, pytest.raises(ConnectionError):
        drip(connected(stack, url))


@pytest.mark.parametrize(
    "head", ["GET /{x} HTTP/1.1\r\nHost: {host}\r\n\r\n", "GET / HTTP/1.1\r\nHost: {host}\r\nx: {x}\r\n\r\n"]
)
@pytest.mark.parametrize(("size", "answered"), [(REQUEST_BYTES, True), (REQUEST_BYTES + 1, False)])
def test_a_request_of_too_many_bytes_has_no_answer(url, head, size, answered):
    """A hundred headers of 64 KiB, on each of 32 connections, took 0.9 GB."""
    host = urlsplit(url).netloc
    request = head.format(host=host, x="x" * (size - len(head.format(host=host, x=""))))
    with contextlib.ExitStack() as stack:
        stream = connected(stack, url)
        with contextlib.suppress(ConnectionError):  # the rest of it was not read
            stream.sendall(request.encode())
            assert bool(stream.recv(100)) is answered


def test_it_listens_on_the_loopback_address_alone(url):
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", urlsplit(url).port)) != 0


def test_the_report_of_an_earlier_run_is_not_there_while_one_goes_on(url, ended):
    with LiveFile(ended, "train", title="x", unit="steps") as live:
        live.stage("training")
        assert ask(url, "/report")[0] == 404
    assert ask(url, "/report")[0] == 200


def test_a_report_that_is_a_link_is_not_shown(url, ended, tmp_path):
    """The folder's maker need not be able to read what whoever watches it can."""
    (tmp_path / "secret").write_text("secret")
    for name in ("report.html", "classes/0/report.html"):
        (ended / name).parent.mkdir(parents=True, exist_ok=True)
        (ended / name).unlink(missing_ok=True)
        (ended / name).symlink_to(tmp_path / "secret")
    (ended / "classes/0/run.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/report.html").write_text("secret")
    (tmp_path / "other/run.json").write_text("{}")
    (ended / "classes/1").symlink_to(tmp_path / "other")
    for path in ("/report", "/report/0", "/report/1"):
        assert ask(url, path)[0] == 404
    assert json.loads(ask(url, "/progress")[2])["reports"] == []


def test_a_folder_that_becomes_a_link_is_not_followed(url, ended, tmp_path, monkeypatch):
    """As if the link had come between the look at the folder and the opening of its file."""
    other = tmp_path / "private"
    other.mkdir()
    (other / "report.html").write_text("secret")
    (other / "run.json").write_text("{}")
    (ended / "classes").mkdir()
    (ended / "classes" / "0").symlink_to(other)
    monkeypatch.setattr("pathlib.Path.is_symlink", lambda path: False)
    status, _, body = ask(url, "/report/0")
    assert (status, body) == (404, b"not found\n")


def test_a_report_is_read_in_pieces(url, ended, monkeypatch):
    monkeypatch.setattr(server, "READ_BYTES", 5)
    monkeypatch.setattr(server._Handler, "wbufsize", 0)
    (ended / "report.html").write_text("a report of 22 letters")
    assert ask(url, "/report")[2] == b"a report of 22 letters"
    with (ended / "report.html").open("wb") as file:
        file.truncate(64 << 20)
    monkeypatch.setattr(server, "READ_BYTES", 1 << 16)
    with contextlib.ExitStack() as stack:
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        host = urlsplit(url).netloc
        for _ in range(4):
            connected(stack, url).sendall(f"GET /report HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        time.sleep(1)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20


def test_a_live_file_is_bounded(url, ended, monkeypatch):
    monkeypatch.setattr(state, "MAX_LIVE_BYTES", 50)
    (ended / LIVE_FILE).write_text('{"format": 1, "title": "this"}')
    assert b'"running"' in ask(url, "/progress")[2]
    (ended / LIVE_FILE).write_text('{"format": 1, "title": "%s"}' % ("this" * 50))
    assert b'"running"' not in ask(url, "/progress")[2]


@pytest.mark.parametrize("content", [None, "[" * 900 + "]" * 900, '{"format": 1, "pid": 1' + "0" * 30 + "}"])
def test_a_live_file_that_is_none_of_ours_stops_nothing(url, ended, content):
    if content is None:
        os.mkfifo(ended / LIVE_FILE)
    else:
        (ended / LIVE_FILE).write_text(content)
    assert ask(url, "/progress")[0] == 200


def test_each_of_several_classes_has_its_report(url, ended):
    (ended / "report.html").unlink()
    for name, text in ("0", "class 0"), ("1", "class 1"), ("10", "class 10"), ("model", "no class"):
        folder = ended / "classes" / name
        folder.mkdir(parents=True)
        (folder / "report.html").write_text(text)
        (folder / "run.json").write_text("{}")
    assert ask(url, "/report")[0] == 404
    assert [ask(url, f"/report/{n}")[2] for n in (0, 1, 10)] == [b"class 0", b"class 1", b"class 10"]
    assert ask(url, "/report/model")[0] == ask(url, "/report/2")[0] == 404


def test_a_port_in_use_takes_one_line(url, tmp_path, capsys):
    port = urlsplit(url).port
    assert main(["watch", str(tmp_path), "--port", str(port)]) == 2
    said = f"fanin: error: --port {port}: cannot be used: Address already in use\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_that_is_none_takes_one_line(port, tmp_path, capsys):
    assert main(["watch", str(tmp_path), f"--port={port}"]) == 2
    assert capsys.readouterr().err == f"fanin: error: --port must be in 1…65535, not {port}\n"


def test_a_file_takes_one_line(ended, capsys):
    assert main(["watch", str(ended / "run.json")]) == 2
    assert capsys.readouterr().err == f"fanin: error: {ended}/run.json: is a file; DIR is the folder of a run\n"


def test_the_command_says_where_it_is_and_ends_with_ctrl_c(tmp_path):
    folder = tmp_path / "none"
    with command(folder) as (process, url, said):
        assert said == f"{url} shows {folder}, which does not exist yet; Ctrl-C ends this\n"
        assert ask(url, "/")[0] == 200
        assert interrupt(process) == (0, "")
    assert not folder.exists()
