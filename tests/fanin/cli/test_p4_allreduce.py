"""``fanin p4 allreduce``: figures of three protocols, and bad input."""

import pytest

from fanin.cli.main import main
from tests.fanin.cli.json_page import documented

SHORT = "p4 allreduce --switch reference --operations 40 --workers 2"


def measured(capsys, options=""):
    assert main([*SHORT.split(), *options.split(), "--json"]) == 0
    return documented("p4 allreduce", capsys.readouterr().out)


def test_the_protocols_send_what_they_need(capsys):
    packets = {
        name: measured(capsys, f"--protocol {name}")["packets"] for name in ("p4sgd", "switchml", "published")
    }
    assert packets == {"p4sgd": 160, "switchml": 80, "published": 160}


def test_latency_is_the_way_to_the_switch_and_back(capsys):
    # 52 bytes padded to 60, 8 of preamble, 4 of FCS: 5.76 ns each way at 100 Gb/s
    found = measured(capsys, "--window 1")
    assert found["latency_ns"]["p50"] == pytest.approx(2 * (100 + 5.76 + 0) + 400, abs=1)
    slower = measured(capsys, "--window 1 --gbps 1 --link-ns 200")["latency_ns"]["p50"]
    assert slower == pytest.approx(2 * (200 + 576) + 400, abs=1)


def test_a_seed_repeats_and_another_one_differs(capsys):
    one, again, other = (measured(capsys, f"--drop 0.2 --seed {seed}") for seed in (1, 1, 2))
    assert one == again
    assert one["time_ns"] != other["time_ns"]


def test_what_people_read(capsys):
    assert main([*SHORT.split(), "--protocol", "published"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["latency", "throughput", "packets", "sums"]
    assert lines[-1].endswith("0 wrong, 0 repeated, 0 lost")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ("--workers 33", 2, "workers must be in 1…32, not 33"),
        ("--window 3", 2, "--window 3: must be a power of two in 1…65536"),
        ("--window 65536 --protocol switchml", 2, "--window 65536: must be a power of two in 1…32768"),
        ("--link-ns=-1", 2, "link_ns must be in [0, 1e+09], not -1.0"),
        ("--operations 0", 2, "--operations 0: must be in 1…1,000,000"),
        ("--drop 2", 2, "drop must be a probability, not 2.0"),
        ("--gbps inf --link-ns 0 --switch-ns 0", 2, "without one the rate is infinite"),
        ("--timeout-ns inf", 2, "timeout_ns must be in (0, 1e+13], not inf"),
        ("--timeout-ns nan", 2, "timeout_ns must be in (0, 1e+13], not nan"),
        ("--timeout-ns 0", 2, "timeout_ns must be in (0, 1e+13], not 0.0"),
        ("--retries -1 --drop 1", 2, "retries must be in 0…65535, not -1"),
        ("--retries 99999999999 --protocol published", 2, "retries must be in 0…65535, not 99999999999"),
        ("--drop 1 --retries 3", 1, "unanswered after 3 retries"),
    ],
)
def test_errors_take_one_line(capsys, options, status, words):
    assert main([*SHORT.split(), *options.split()]) == status
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
