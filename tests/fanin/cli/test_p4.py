"""``fanin p4 run`` and ``fanin p4 stf``: captures in and out, exit statuses, and bad input."""

import json
import struct

import pytest
from scapy.utils import PcapNgWriter, RawPcapReader, wrpcap

from fanin.cli.main import main
from fanin.job import SWITCH, worker_endpoint
from fanin.sim.capture import read_capture
from fanin.sim.pcap import PcapWriter
from fanin.wire.aggregation import AggPacket, Encap, Kind, decode_payload, encode, header_length
from tests.sim.switch.embedded.programs import PARTS, V1MODEL

TABLE = """action forward(bit<9> to) { std.egress_spec = to; hdr.h.d = hdr.h.d + 1; }
    table t { key = { hdr.h.a: exact; hdr.h.b: ternary; } actions = { forward; NoAction; } }"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.p4"
    path.write_text(V1MODEL.format(**{**PARTS, "locals": TABLE, "apply": "t.apply();"}))
    return path


def _capture(path, frames):
    with PcapWriter(path) as writer:
        for time, frame in frames:
            writer.write(bytes.fromhex(frame), time * 1000)
    return path


def _run(capsys, *arguments):
    status = main(["p4", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


ENTRIES = [
    {
        "table": "I.t",
        "match": {"hdr.h.a": {"value": 1}, "hdr.h.b": {"value": 2, "mask": 2}},
        "action": "I.forward",
        "parameters": {"to": 3},
        "priority": 1,
    },
    {"id": 1, "replicas": [{"port": 1, "id": 2}]},
]


def test_captures_go_through_in_the_order_of_their_times(capsys, program, tmp_path):
    entries = tmp_path / "entries.json"
    entries.write_text(json.dumps(ENTRIES))
    first = _capture(tmp_path / "1.pcap", [(5, "01020305"), (7, "01020300")])
    second = _capture(tmp_path / "2.pcap", [(5, "01020306"), (6, "01000307")])
    out = tmp_path / "out"
    status, text, _ = _run(
        capsys, "run", program, "--entries", entries, "--in", f"2={second}", f"1={first}", "--out", out
    )
    assert (status, text) == (0, "4 frames in, 4 out at 2 ports\n")
    assert sorted(path.name for path in out.iterdir()) == ["0.pcap", "3.pcap"]
    assert read_capture(out / "3.pcap") == [(5, b"\1\2\3\6"), (5, b"\1\2\3\7"), (7, b"\1\2\3\1")]
    with RawPcapReader(str(out / "0.pcap")) as reader:
        assert [bytes(frame) for frame, _ in reader] == [b"\1\0\3\7"]


def test_a_trace_is_printed(capsys, program, tmp_path):
    capture = _capture(tmp_path / "1.pcap", [(5, "01020305")])
    _, text, _ = _run(capsys, "run", program, "--in", f"1={capture}", "--out", tmp_path / "out", "--trace")
    assert text.splitlines()[:3] == [
        "port 1: 4 bytes",
        "  parser P.start",
        "  table I.t(hdr.h.a=0x1, hdr.h.b=0x2): miss, NoAction()",
    ]


@pytest.mark.parametrize("target", ["v1model", "tna"])
def test_the_emitted_program_runs_with_its_job(capsys, tmp_path, target):
    folder = tmp_path / "p4"
    emit = ("emit", "--target", target, "--workers", "2", "--slots", "4", "--encap", "udp", "-o", folder)
    assert _run(capsys, *emit)[0] == 0
    inputs = []
    for worker in range(2):
        packet = AggPacket(Kind.AGG, 1, 0, 1, 1 << worker, (worker + 1,) * 8)
        frame = encode(packet, encap=Encap.UDP, source=worker_endpoint(worker), destination=SWITCH)
        inputs.append(f"{worker}={_capture(tmp_path / f'{worker}.pcap', [(worker, frame.hex())])}")
    out = tmp_path / "out"
    arguments = ("--job", folder / "job.json", "--in", *inputs, "--out", out)
    assert _run(capsys, "run", folder / "aggregation.p4", *arguments)[0] == 0
    for worker in range(2):
        ((time, frame),) = read_capture(out / f"{worker}.pcap")
        answer = decode_payload(frame[header_length(Encap.UDP) :], 8)
        assert (time, answer.kind, answer.bitmap, answer.values) == (1, Kind.RESULT, 3, (3,) * 8)


def test_pcapng_and_both_precisions_are_read_to_the_nanosecond(tmp_path):
    from scapy.layers.l2 import Ether

    packet = Ether(bytes(14))
    packet.time = 1700000000.25
    with PcapNgWriter(str(tmp_path / "a.pcapng")) as writer:
        writer.write(packet)
    wrpcap(str(tmp_path / "a.pcap"), [packet])
    late = (1700000000 * 10**9 + 123456789, bytes(4))
    with PcapWriter(tmp_path / "b.pcap") as writer:
        writer.write(late[1], late[0] * 1000)
    expected = [(1700000000_250000000, bytes(14))]
    assert read_capture(tmp_path / "a.pcapng") == read_capture(tmp_path / "a.pcap") == expected
    assert read_capture(tmp_path / "b.pcap") == [late]


def _bad(capsys, *arguments):
    status, out, err = _run(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    return err


class TestBadInput:
    def test_a_program_with_an_error(self, capsys, tmp_path, program):
        program.write_text(program.read_text().replace("std.egress_spec", "std.egress_pec"))
        capture = _capture(tmp_path / "1.pcap", [])
        err = _bad(capsys, "run", program, "--in", f"1={capture}", "--out", tmp_path / "out")
        assert "program.p4:12:" in err
        assert "standard_metadata_t has no field egress_pec" in err

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"", "neither pcap nor pcapng"),
            (b"\n\r\r\n" + bytes(20), "not a whole pcapng file"),
            (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 99, 113), "something else than Ethernet"),
            (struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 99, 1, 0, 0, 4, 4), "ends within a packet"),
            (
                struct.pack("<IHHiIIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 99, 1, 0, 0, 4, 9, 0),
                "capture whole frames",
            ),
        ],
    )
    def test_a_capture_that_is_none(self, capsys, program, tmp_path, content, what):
        path = tmp_path / "1.pcap"
        path.write_bytes(content)
        assert what in _bad(capsys, "run", program, "--in", f"1={path}", "--out", tmp_path / "out")

    def test_an_input_without_a_port(self, capsys, program, tmp_path):
        assert "must be PORT=FILE" in _bad(capsys, "run", program, "--in", "a.pcap", "--out", tmp_path)

    def test_entries_that_do_not_fit(self, capsys, program, tmp_path):
        capture = _capture(tmp_path / "1.pcap", [])
        entries = tmp_path / "entries.json"
        for change, what in (
            ({"table": "I.x"}, "there is no table I.x"),
            ({"match": {"hdr.h.a": {"low": 1}}}, "item 0: {'low': 1} is no match"),
            ({"colour": 1}, "item 0: "),
        ):
            entries.write_text(json.dumps([{**ENTRIES[0], **change}]))
            arguments = ("--entries", entries, "--in", f"1={capture}", "--out", tmp_path / "out")
            assert what in _bad(capsys, "run", program, *arguments)

    def test_a_job_for_another_program(self, capsys, program, tmp_path):
        capture = _capture(tmp_path / "1.pcap", [])
        assert _run(capsys, "emit", "-o", tmp_path / "p4")[0] == 0
        arguments = ("--job", tmp_path / "p4" / "job.json", "--in", f"1={capture}", "--out", tmp_path / "out")
        assert "job.json: is for another program than" in _bad(capsys, "run", program, *arguments)


@pytest.mark.parametrize(
    ("test", "status", "what"),
    [
        ("packet 1 01020304\nexpect 0 0102\n", 0, "as expected"),
        ("packet 1 01020304\nexpect 0 0202\n", 1, "1 things are not as expected"),
        ("dance 1\n", 3, "test.stf:1:1: command dance"),
        ("add t 1 h.a:1 forward(to:999)\n", 2, "to: 999 does not fit in 9 bits"),
    ],
)
def test_stf_exit_statuses(capsys, program, tmp_path, test, status, what):
    path = tmp_path / "test.stf"
    path.write_text(test)
    result = _run(capsys, "stf", program, path)
    assert result[0] == status
    assert what in result[1] + result[2]
    assert result[2].count("\n") <= 1


def test_stf_refuses_an_unknown_include(capsys, program, tmp_path):
    program.write_text("#include <psa.p4>\n")
    path = tmp_path / "test.stf"
    path.write_text("wait\n")
    status, _, err = _run(capsys, "stf", program, path)
    assert status == 3
    assert "program.p4:1:2: #include of psa.p4" in err
