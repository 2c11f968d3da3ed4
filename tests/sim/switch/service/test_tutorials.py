"""p4lang's tutorials on served switches: hosts exchange what each exercise says.

``P4_TUTORIALS=.../tutorials/exercises pytest -m tutorials``; they are not part of this repository.
"""

import itertools
import os
import socket
import subprocess
from pathlib import Path

import pytest

from .tutorials import Exercise

pytestmark = [pytest.mark.tutorials, pytest.mark.slow, pytest.mark.needs("P4_TUTORIALS", "namespaces")]
POD, FLAT = "pod-topo/topology.json", "topology.json"
VIA = "10.0.2.2"


@pytest.fixture
def exercises():
    return Path(os.environ["P4_TUTORIALS"])


def _all_ping(exercise, hosts=None):
    pairs = itertools.combinations(hosts or sorted(exercise.hosts), 2)
    return [f"{one} to {other}" for one, other in pairs if not exercise.pings(one, other)]


@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("basic", POD),
        ("basic", "triangle-topo/topology.json"),
        ("basic_tunnel", FLAT),
        ("ecn", FLAT),
        ("mri", FLAT),
        ("qos", FLAT),
        ("link_monitor", POD),
    ],
)
def test_every_host_reaches_every_other(exercises, name, topology):
    with Exercise(exercises / name, topology, f"solution/{name}.p4") as exercise:
        assert not _all_ping(exercise)
    assert "undefined" not in exercise.said


def test_multicast_floods_what_it_does_not_know(exercises):
    with Exercise(exercises / "multicast", "sig-topo/topology.json", "solution/multicast.p4") as exercise:
        assert not _all_ping(exercise, ["h1", "h2", "h3"])


def test_a_tunnel_leads_where_its_id_says(exercises):
    with Exercise(exercises / "basic_tunnel", FLAT, "solution/basic_tunnel.p4") as exercise:
        with exercise.listening("h2", "h3") as heard:
            exercise.run("h1", "send.py", "10.0.3.3", "through a tunnel", "--dst_id", "2")
        assert [b"through a tunnel" in frame for frame in heard["h2"]] == [True]
        assert not heard["h3"]


def test_the_calculator_calculates(exercises):
    with Exercise(exercises / "calc", FLAT, "solution/calc.p4") as exercise:
        asked = {"12+30": "42", "9-4": "5", "12&10": "8", "12|3": "15", "5^1": "4"}
        answers = exercise.run("h1", "calc.py", given="\n".join([*asked, "quit", ""])).replace("> ", "")
    assert answers.split() == list(itertools.chain.from_iterable(asked.items()))


def test_a_firewall_lets_answers_in_and_nothing_else(exercises):
    programs = {f"s{n}": "basic.p4" for n in (2, 3, 4)} | {"s1": "solution/firewall.p4"}
    if not (exercises / "firewall/solution/basic.p4").exists():
        programs |= {f"s{n}": "../basic/solution/basic.p4" for n in (2, 3, 4)}
    with Exercise(exercises / "firewall", POD, "solution/firewall.p4", programs=programs) as exercise:
        assert _connects(exercise, "h1", "h3")
        assert not _connects(exercise, "h3", "h1")
        assert _connects(exercise, "h1", "h2")


def _connects(exercise, one, other, port=4242, limit=4):
    """Whether a TCP connection comes about."""
    server = exercise.lab.opened(other, lambda: socket.create_server(("0.0.0.0", port)))
    client = exercise.lab.opened(one, socket.socket)
    client.settimeout(limit)
    with server, client:
        try:
            client.connect((exercise.ip(other), port))
        except TimeoutError:
            return False
    return True


def test_connections_are_spread_over_two_servers(exercises):
    with (
        Exercise(exercises / "load_balance", FLAT, "solution/load_balance.p4") as exercise,
        exercise.listening("h2", "h3") as heard,
    ):
        for number in range(8):
            exercise.run("h1", "send.py", "10.0.0.1", f"message {number}")
    found = {host: sum(b"message" in frame for frame in frames) for host, frames in heard.items()}
    assert sum(found.values()) == 8
    assert min(found.values()) >= 1


def test_a_probe_visits_the_links_that_it_names(exercises):
    with (
        Exercise(exercises / "link_monitor", POD, "solution/link_monitor.p4") as exercise,
        exercise.listening("h1") as heard,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        exercise.run("h1", "send.py", limit=8)  # it sends one a second until it is ended
    probes = [frame for frame in heard["h1"] if frame[12:14] == b"\x08\x12"]
    assert probes
    assert {frame[14] for frame in probes} == {9}  # switches that it has passed


def test_source_routing_goes_where_the_sender_says(exercises):
    with (
        Exercise(exercises / "source_routing", FLAT, "solution/source_routing.p4") as exercise,
        exercise.listening("h2") as heard,
    ):
        exercise.run("h1", "send.py", VIA, given="2 3 2 2 1\nq\n")
    (frame,) = heard["h2"]
    assert frame[12:14] == b"\x08\x00"
    assert frame[22] == 64 - 5  # switches that it has passed


def test_a_path_is_recorded(exercises):
    with (
        Exercise(exercises / "mri", FLAT, "solution/mri.p4") as exercise,
        exercise.listening("h2") as heard,
    ):
        exercise.run("h1", "send.py", VIA, "P4 is cool", "1")
    (frame,) = [frame for frame in heard["h2"] if b"P4 is cool" in frame]
    assert (frame[14] & 15) * 4 == 20 + 4 + 2 * 8  # IPv4's header, MRI's, and two switches
    assert int.from_bytes(frame[36:38], "big") == 2


def test_classes_of_service_are_marked(exercises):
    with (
        Exercise(exercises / "qos", FLAT, "solution/qos.p4") as exercise,
        exercise.listening("h2") as heard,
    ):
        for protocol in ("UDP", "TCP"):
            exercise.run("h1", "send.py", f"--p={protocol}", f"--des={VIA}", "--m=hello", "--dur=1")
    marks = {frame[23]: frame[15] for frame in heard["h2"] if b"hello" in frame}
    assert marks == {17: 46 << 2 | 1, 6: 44 << 2 | 1}  # expedited forwarding, voice admit
