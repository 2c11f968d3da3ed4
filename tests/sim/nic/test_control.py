"""The control socket: a line, an answer; what is no request; sockets that are in the way."""

import contextlib
import errno
import json
import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest

from fanin.base.errors import InputError, ToolFailed
from fanin.cli.main import main
from fanin.host.nic import RdmaNic
from fanin.rdma.facts import Ending
from fanin.sim.nic.control import MAX_CLIENTS, MAX_LINE, ControlServer, check_control


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control"


@pytest.fixture
def server(path):
    """It answers with what it was asked."""
    server = ControlServer(path, lambda request, answer: answer({"asked": request}))
    yield server
    server.close()


def _client(path):
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(path))
    client.settimeout(5)
    return client


def _answers(server, client, data):
    client.sendall(data)
    while server.serve():
        pass
    return [json.loads(line) for line in client.recv(1 << 16).splitlines()]


def _is_hung_up(server, client, line):
    try:
        client.sendall(line)
    except TimeoutError:
        pass
    except ConnectionError:
        return True
    while server.serve():
        pass
    return False


def test_each_line_is_a_request_and_has_an_answer_with_its_id(server, path):
    with _client(path) as client:
        assert _answers(server, client, b'{"do": "a", "id": 7}\n{"do": "b"}\n\n{"do"') == [
            {"id": 7, "asked": {"do": "a"}},
            {"asked": {"do": "b"}},
        ]
        assert _answers(server, client, b': "c"}\n') == [{"asked": {"do": "c"}}]


@pytest.mark.parametrize("line", [b"{", b"3", b"[]", b'"x"', b"\xff\xfe"])
def test_what_is_no_request_is_answered_by_an_error(server, path, line):
    with _client(path) as client:
        (answer,) = _answers(server, client, line + b"\n")
        assert "JSON" in answer["error"]


def test_a_client_that_sends_no_end_of_line_is_hung_up_on(server, path):
    with _client(path) as client:
        for _ in range(2):
            client.sendall(bytes(MAX_LINE // 2 + 1))
            while server.serve():
                pass
        with contextlib.suppress(ConnectionResetError):  # the last of it was not read
            assert client.recv(1) == b""


@pytest.mark.parametrize("line", [b"3\n", b"{}\n"])
def test_many_short_requests_keep_the_node_for_a_moment_only(server, path, line):
    """Answers that the client left were copied for each request: 2 s for 64 KiB."""
    with _client(path) as deaf:
        deaf.settimeout(0.01)
        with contextlib.suppress(OSError):
            deaf.sendall(line * 50_000)
        began = time.thread_time()
        while server.serve():
            assert time.thread_time() - began < 0.3
            began = time.thread_time()


def test_of_too_many_clients_the_last_is_hung_up_on(server, path):
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(_client(path)) for _ in range(MAX_CLIENTS)]
        assert _answers(server, clients[-1], b"{}\n") == [{"asked": {}}]
        with _client(path) as late:
            while server.serve():
                pass
            assert late.recv(1) == b""
        clients[0].close()
        while server.serve():
            pass
        with _client(path) as later:
            assert _answers(server, later, b"{}\n") == [{"asked": {}}]


def test_requests_that_wait_for_answers_are_bounded(path, monkeypatch):
    monkeypatch.setattr("fanin.sim.nic.control.MAX_UNANSWERED", 2)
    waiting = []
    server = ControlServer(path, lambda request, answer: waiting.append(answer))
    with contextlib.closing(server), _client(path) as client:
        said = "2 requests wait for their answers"
        assert _answers(server, client, b"{}\n{}\n" + b'{"id": 3}\n') == [{"id": 3, "error": said}]
        waiting[0]({"done": 1})
        waiting[1]({"done": 2})
        assert [json.loads(line) for line in client.recv(1000).splitlines()] == [{"done": 1}, {"done": 2}]
        client.sendall(b"{}\n")
        while server.serve():
            pass
        assert len(waiting) == 3


@pytest.mark.parametrize("depth", [65, *range(900, 1000)])
@pytest.mark.parametrize("field", ["id", "x"])
def test_values_too_deep_to_be_written_again_are_refused(server, path, depth, field):
    line = f'{{"{field}": {"[" * depth}{"]" * depth}}}\n'.encode()
    with _client(path) as client:
        (answer,) = _answers(server, client, line)
        assert answer["error"].startswith("no JSON: ")


def test_a_client_that_does_not_read_is_hung_up_on_and_others_go_on(server, path):
    with _client(path) as deaf, _client(path) as other:
        deaf.settimeout(0.01)
        line = json.dumps({"x": "y" * 50_000}).encode() + b"\n"
        assert any(_is_hung_up(server, deaf, line) for _ in range(100))
        assert _answers(server, other, b"{}\n") == [{"asked": {}}]


def test_the_socket_is_its_owners_alone_and_goes(server, path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InputError, match=r"control: in use by another process"):
        check_control(path)
    gone = ControlServer(path.with_name("other"), lambda request, answer: None)
    gone.close()
    assert not path.with_name("other").exists()


def test_a_socket_that_a_killed_process_left_is_removed(path):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    check_control(path)
    assert not path.exists()


def test_a_socket_that_was_left_and_cannot_be_removed_is_refused(path, monkeypatch):
    def refuse(path, missing_ok=False):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    monkeypatch.setattr(Path, "unlink", refuse)  # for root may do it in any folder
    with pytest.raises(InputError, match=r"control: is left from another process: Permission denied"):
        check_control(path)


def test_what_cannot_be_a_control_socket_is_refused(path, tmp_path):
    path.touch()
    for wrong, message in {
        path: "exists, and is no socket",
        tmp_path / "no" / "control": "there is no folder",
        tmp_path / ("x" * 120): "at most 107 bytes",
    }.items():
        with pytest.raises(InputError, match=message):
            check_control(wrong)
    assert path.exists()


def test_a_program_is_told_that_there_is_no_node_or_none_any_more(path):
    with pytest.raises(InputError, match=r"control: no node serves it: No such file"):
        RdmaNic(path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with RdmaNic(path, seconds=0.05) as nic, pytest.raises(ToolFailed, match=r"no answer in 0\.05 s"):
            nic.info()
        with RdmaNic(path) as nic:
            silent.accept()[0].close()  # of the first
            silent.accept()[0].close()
            with pytest.raises(ToolFailed, match="the node has ended"):
                nic.info()


def test_an_answer_that_comes_after_a_timeout_can_still_be_waited_for(path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with RdmaNic(path, seconds=0.05) as nic, listener.accept()[0] as node:
            posted = [nic.post(1), nic.post(1)]
            node.sendall(b'{"id": 1, "end')
            for _ in range(2):
                with pytest.raises(ToolFailed, match=r"no answer in 0\.05 s"):
                    nic.wait(posted[0])
            node.sendall(b'ing": "done"}\n{"id": 2, "ending": "access"}\n')
            assert [nic.wait(number) for number in posted] == [Ending.DONE, Ending.ACCESS]


@pytest.mark.parametrize(
    "answer",
    [b"no JSON\n", b'{"end\n', b"[" * 100_000 + b"\n", b"[1]\n", b'{"error": "x"}\n', b"x" * (1 << 21)],
)
def test_what_is_no_answer_is_told_in_one_line(path, answer):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with RdmaNic(path, seconds=5) as nic, listener.accept()[0] as node:

            def send():
                with contextlib.suppress(OSError):  # the program has hung up
                    node.sendall(answer)

            sender = threading.Thread(target=send)
            sender.start()
            with pytest.raises(ToolFailed, match="not an answer of fanin nic run") as told:
                nic.info()
            assert len(str(told.value)) < len(str(path)) + 100
            node.shutdown(socket.SHUT_RDWR)
            sender.join(5)


@contextlib.contextmanager
def _node(path, answers):
    """Something at the socket that sends ``answers`` to each client, one every 20 ms."""

    def serve():
        with contextlib.suppress(OSError):
            while True:
                client = listener.accept()[0]
                with client:
                    for line in answers:
                        client.sendall(line)
                        time.sleep(0.02)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_answers_to_nothing_end_the_wait(path):
    """They would fill the memory."""
    error = pytest.raises(ToolFailed, match="not an answer of fanin nic run")
    with _node(path, [b'{"id": 7}\n'] * 20), RdmaNic(path) as nic, error:
        nic.info()


def test_bytes_without_an_end_of_the_line_do_not_prolong_the_wait(path):
    error = pytest.raises(ToolFailed, match=r"no answer in 0\.2 s")
    with _node(path, [b" "] * 100), RdmaNic(path, seconds=0.2) as nic, error:
        nic.info()


@pytest.mark.parametrize(
    ("answer", "call"),
    [
        ({"memory": 1, "bytes": 8}, RdmaNic.memory),
        ({"memory": "/dev/null"}, RdmaNic.memory),
        ({"ending": "sideways"}, lambda nic: nic.write(4)),
        ({}, lambda nic: nic.write(4)),
        ({}, RdmaNic.arrival),
        ({}, RdmaNic.counters),
        ({"counters": {"frames": "many"}}, RdmaNic.counters),
    ],
)
def test_an_answer_of_another_form_is_refused(path, answer, call):
    line = json.dumps({"id": 1} | answer).encode() + b"\n"
    error = pytest.raises(ToolFailed, match=r"its answer to [a-z]+ is not that of fanin nic run")
    with _node(path, [line]), RdmaNic(path) as nic, error:
        call(nic)


def test_a_node_of_another_form_is_shown_in_one_line(path, capsys):
    lines = [b'{"id": 1, "node": "x", "queue_pairs": "y"}\n', b'{"id": 2, "counters": {}}\n']
    with _node(path, lines):
        assert main(["nic", "show", str(path)]) == 1
    error = f"fanin: error: {path}: its answer to info is not that of fanin nic run\n"
    assert capsys.readouterr().err == error
