"""``fanin p4 run`` and ``fanin p4 stf``: captures in and out, exit statuses, and bad input."""

import json
import struct

import pytest
from scapy.utils import PcapNgWriter, RawPcapReader, wrpcap

from fanin.cli.main import main
from fanin.cli.p4.step import HELP
from fanin.job import SWITCH, worker_endpoint
from fanin.p4.deployment import load_deployment
from fanin.sim.capture import read_capture
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import AggPacket, Encap, Kind, Protocol, decode_payload, encode, header_length
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


def _group(number, **replica):
    return {"id": number, "replicas": [{"port": 1, **replica}]}


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
    capture = _capture(tmp_path / "1.pcap", [(5, "01020305"), (1_000_000_008, "01020305")])
    _, text, _ = _run(capsys, "run", program, "--in", f"1={capture}", "--out", tmp_path / "out", "--trace")
    assert text.splitlines() == [
        "packet 1 at 0.000000000 s: port 1, 4 bytes",
        "  parser P.start",
        "  header hdr.h: a=0x1, b=0x2, c=0x3, d=0x5",
        "  table I.t(hdr.h.a=0x1, hdr.h.b=0x2): miss, NoAction()",
        "  -> port 0",
        "packet 2 at 1.000000003 s: port 1, 4 bytes",
        "  parser P.start",
        "  header hdr.h: a=0x1, b=0x2, c=0x3, d=0x5",
        "  table I.t(hdr.h.a=0x1, hdr.h.b=0x2): miss, NoAction()",
        "  -> port 0",
        "2 frames in, 2 out at 1 ports",
        "  port 0: 0 in, 2 out",
        "  port 1: 2 in, 0 out",
        "  table I.t: 0 hits, 2 misses",
    ]


@pytest.mark.parametrize(
    ("lines", "frames", "said"),
    [
        (["", "", ""], 3, ""),
        (["c"], 3, ""),
        (["", "q"], 2, ""),
        ([], 1, ""),
        (["r I.r[1]", "c"], 3, "I.r[1] = 3"),
        (["r I.r[9]", "c"], 3, "I.r has 4 entries"),
        (["r x", "c"], 3, "no register x; there are I.r[…]"),
        (["help", "c"], 3, HELP),
    ],
)
def test_a_run_stops_behind_each_packet(capsys, monkeypatch, tmp_path, lines, frames, said):
    path = tmp_path / "program.p4"
    registers = {"locals": "register<bit<8>>(4) r;", "apply": "r.write(1, hdr.h.c);"}
    path.write_text(V1MODEL.format(**{**PARTS, **registers}))
    capture = _capture(tmp_path / "1.pcap", [(n, "01020305") for n in range(3)])
    answers = iter(lines)

    def answer(prompt):
        for line in answers:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    out = tmp_path / "out"
    status, text, _ = _run(capsys, "run", path, "--in", f"1={capture}", "--out", out, "--step")
    assert status == 0
    assert f"\n{frames} frames in, {frames} out at 1 ports\n" in text
    assert len(read_capture(out / "0.pcap")) == frames
    assert said in text.splitlines() or not said


def test_stepping_needs_a_terminal(capsys, monkeypatch, program, tmp_path):
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    capture = _capture(tmp_path / "1.pcap", [(5, "01020305")])
    status, _, error = _run(capsys, "run", program, "--in", f"1={capture}", "--out", tmp_path / "out", "--step")
    assert (status, error) == (
        2,
        "fanin: error: --step needs a terminal as standard input\n",
    )
    assert not (tmp_path / "out").exists()


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


@pytest.fixture(params=Encap)
def recorded(request, tmp_path, capsys):
    """An emitted program's folder, with a capture of its job at the reference switch: a duplicate, a stray."""
    folder, encap = tmp_path / "p4", request.param
    emit = ("emit", "--workers", "2", "--slots", "4", "--encap", encap, "-o", folder)
    assert _run(capsys, *emit)[0] == 0
    switch = ReferenceSwitch(endpoint=SWITCH, ports=2, values=8, protocol=Protocol.P4SGD, encap=encap)
    (job,) = load_deployment(folder / "job.json").jobs
    switch.add_job(job)
    frames = []
    for time, worker in enumerate([0, 1, 1]):
        packet = AggPacket(Kind.AGG, 1, 0, 1, 1 << worker, (worker + 1,) * 8)
        frame = encode(packet, encap=encap, source=worker_endpoint(worker), destination=SWITCH)
        frames.append((10 * time, frame))
        frames += [(10 * time + 15, answer) for _, answer, _ in switch.inject(worker, frame, 10 * time)]
    frames.sort(key=lambda pair: pair[0])
    return folder, frames


def _replay(capsys, folder, frames, *more):
    capture = _capture(folder / "frames.pcap", [(time, frame.hex()) for time, frame in frames])
    arguments = ("--job", folder / "job.json", "--recorded", capture)
    return _run(capsys, "run", folder / "aggregation.p4", *arguments, *more)


def test_a_recorded_run_is_answered_as_it_was(capsys, recorded):
    folder, frames = recorded
    status, out, err = _replay(capsys, folder, frames, "--out", folder / "out")
    assert (status, err) == (0, "")
    assert out == "3 frames in, 3 out at 2 ports\n3 recorded answers: 3 equal, 0 differ\n"
    assert [len(read_capture(folder / "out" / f"{port}.pcap")) for port in range(2)] == [1, 2]


def test_a_recorded_answer_that_differs_is_shown(capsys, recorded):
    folder, frames = recorded
    (at, frame) = frames[3]  # behind two of the three AGGs: RESULT to worker 0 or 1
    wrong = [*frames]
    wrong[3] = at, frame[:-1] + bytes([frame[-1] ^ 1])
    status, out, err = _replay(capsys, folder, wrong)
    assert status == 1
    assert out.splitlines()[1] == "3 recorded answers: 2 equal, 1 differ"
    assert err.startswith(
        f"fanin: error: {folder / 'frames.pcap'}: 1 answers differ; the first is answer 1 at port "
    )
    assert f"byte {len(frame) - 1} differs" in err


def test_answers_that_lack_or_are_too_many_differ(capsys, recorded):
    folder, frames = recorded
    status, out, err = _replay(capsys, folder, frames[:-1])
    assert (status, out.splitlines()[1]) == (1, "2 recorded answers: 2 equal, 1 differ")
    assert "sent, and not recorded" in err
    status, out, err = _replay(capsys, folder, [*frames, (99, frames[-1][1])])
    assert (status, out.splitlines()[1]) == (1, "4 recorded answers: 3 equal, 1 differ")
    assert "recorded, and not sent" in err


def test_frames_of_nobody_in_a_recording_are_counted(capsys, recorded):
    folder, frames = recorded
    status, _, err = _replay(capsys, folder, [*frames, (50, bytes(60))])
    assert status == 0
    assert "frames.pcap: 1 frames are neither from a member of a job nor from the switch to one" in err
    status, _, err = _replay(capsys, folder, [(50, bytes(60))])
    assert (status, err.count("\n")) == (2, 1)
    assert "no frame of 1 is from a member of the jobs" in err


def test_without_entries_a_warning_says_so(capsys, program, tmp_path):
    capture = _capture(tmp_path / "1.pcap", [(5, "01020305")])
    status, _, err = _run(capsys, "run", program, "--in", f"1={capture}", "--out", tmp_path / "out")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith("fanin: warning: no entries are installed")


def test_meters_and_clones_that_nobody_configured_are_warned_of(capsys, tmp_path):
    path = tmp_path / "marked.p4"
    apply = "rate.execute_meter<bit<8>>(0, hdr.h.a); clone(CloneType.I2E, 3);"
    parts = {"locals": "meter(2, MeterType.bytes) rate;", "apply": apply}
    path.write_text(V1MODEL.format(**{**PARTS, **parts}))
    capture = _capture(tmp_path / "in.pcap", [(0, "01020304"), (1, "01020304")])
    status, _, err = _run(capsys, "run", path, "--in", f"0={capture}", "--out", tmp_path / "out")
    assert status == 0
    assert err.count("meters have no rates here, every packet is green: I.rate") == 1
    assert "2 clones lost: clone session 3 is not configured" in err


def test_a_clone_session_of_the_entries_sends_clones(capsys, tmp_path):
    program, entries = tmp_path / "cloned.p4", tmp_path / "entries.json"
    program.write_text(V1MODEL.format(**{**PARTS, "apply": "clone(CloneType.I2E, 3); std.egress_spec = 1;"}))
    entries.write_text(json.dumps([{"session": 3, "replicas": [{"port": 4}, {"port": 5, "id": 2}]}]))
    capture, out = _capture(tmp_path / "in.pcap", [(0, "01020304")]), tmp_path / "out"
    arguments = ("--entries", entries, "--in", f"0={capture}", "--out", out)
    assert _run(capsys, "run", program, *arguments)[::2] == (0, "")
    assert sorted(path.name for path in out.iterdir()) == ["1.pcap", "4.pcap", "5.pcap"]
    with RawPcapReader(str(out / "5.pcap")) as packets:
        assert [frame.hex() for frame, _ in packets] == ["01020304"]


def test_addresses_are_written_as_people_write_them(capsys, tmp_path):
    """Numbers, hexadecimal, MAC and IP; a bare value is an exact match."""
    table = """action forward(bit<9> to) { std.egress_spec = to; }
    table t { key = { hdr.h.a: exact; hdr.h.b: ternary; hdr.h.c ++ hdr.h.d: exact @name("cd"); }
              actions = { forward; NoAction; } }"""
    program, capture = tmp_path / "program.p4", _capture(tmp_path / "1.pcap", [(5, "01020305")])
    program.write_text(V1MODEL.format(**{**PARTS, "locals": table, "apply": "t.apply();"}))
    entry = {
        "table": "I.t",
        "match": {"hdr.h.a": "0x1", "hdr.h.b": {"value": "00:00:00:00:00:02", "mask": 255}, "cd": "0.0.3.5"},
        "action": "I.forward",
        "parameters": {"to": "3"},
        "priority": "1",
    }
    (tmp_path / "entries.json").write_text(json.dumps([entry]))
    arguments = ("--entries", tmp_path / "entries.json", "--in", f"1={capture}", "--out", tmp_path / "out")
    assert _run(capsys, "run", program, *arguments)[0] == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["3.pcap"]


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
            (b"", "not a pcap or pcapng file"),
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
        for file in ("a.pcap", f"{'9' * 5000}=a.pcap"):
            assert "must be PORT=FILE" in _bad(capsys, "run", program, "--in", file, "--out", tmp_path)

    def test_entries_that_do_not_fit(self, capsys, program, tmp_path):
        capture = _capture(tmp_path / "1.pcap", [])
        entries = tmp_path / "entries.json"
        arguments = ("--entries", entries, "--in", f"1={capture}", "--out", tmp_path / "out")
        for change, what in (
            ({"table": "I.x"}, "item 0: there is no table I.x; there are I.t"),
            ({"table": 3}, "item 0: table: must be a name, not 3"),
            ({"match": {"hdr.h.a": {"low": 1}}}, "item 0: match: hdr.h.a: has low; a match has value; "),
            ({"match": {"hdr.h.x": 1}}, "item 0: table I.t has no key hdr.h.x; it has hdr.h.a, hdr.h.b"),
            ({"match": {"hdr.h.a": "02:00:00:00:01"}}, "item 0: match: hdr.h.a: must be a number, or as text"),
            ({"match": {"hdr.h.a": "02:00:00:00:00:01"}}, "item 0: table I.t: hdr.h.a: 2199023255553 does not"),
            ({"match": [1]}, "item 0: match: must be an object, not [1]"),
            ({"action": "I.x"}, "item 0: table I.t has no action I.x; it has I.forward, NoAction"),
            ({"parameters": {"two": 3}}, "item 0: action I.forward takes the parameters to, not two"),
            ({"parameters": {"to": 1.5}}, "item 0: parameters: to: must be a number"),
            ({"priority": None}, "item 0: priority: must be a number"),
            ({"colour": 1}, "item 0: has no field 'colour'; it may have table, match, action, parameters"),
        ):
            entries.write_text(json.dumps([{**ENTRIES[0], **change}]))
            assert f"entries.json: {what}" in _bad(capsys, "run", program, *arguments)
        for document, what in (
            ([3], "item 0: must be an object, not 3"),
            ([{"table": "I.t", "match": {}}], "item 0: action is missing; it has table, match"),
            ([{"id": "1.2.3", "replicas": []}], "item 0: id: must be a number"),
            ([{"id": 1, "replicas": [{"id": 1}]}], "item 0: replicas: 0: port is missing; it has id"),
            ([{"id": 1, "replicas": {}}], "item 0: replicas: must be a list"),
            ([_group(0)], "item 0: multicast group 0: 0 means none"),
            ([_group(65536)], "item 0: multicast group 65536: 65536 does not fit in 16 bits"),
            ([_group(1, id=65536)], "item 0: multicast group 1: replica id: 65536 does not fit in 16 bits"),
            ([_group(1, id=-1)], "item 0: multicast group 1: replica id: -1 does not fit in 16 bits"),
            ([_group(1, exclusion=1)], "item 0: multicast group 1: port 1: only TNA has an exclusion id"),
            ([_group(1), _group(2), _group(1)], "item 2: id: 1 is the id of another group, "),
            (
                [{"id": 1, "replicas": [{"port": 1}, {"port": 1, "id": 1}, {"port": 1, "id": 0}]}],
                "item 0: replicas: 2: port 1 occurs twice with the id 0",
            ),
            (
                [{"id": 1, "replicas": [{"port": 1, "id": number} for number in range(1025)]}],
                "item 0: replicas: has 1,025, more than 1,024",
            ),
            ([{"id": "9" * 5000, "replicas": []}], "item 0: id: must be a number"),
            ([{"session": 0, "replicas": []}], "item 0: session: must be 1 to 4294967295, not 0"),
            ([{"session": 3, "port": 1}], "item 0: has no field 'port'; it may have session, replicas"),
            ([{"session": 3, "replicas": [{"port": 511}]}], "item 0: clone session 3: there is no port 511"),
            (
                [{"session": 3, "replicas": []}, {"session": 3, "replicas": []}],
                "item 1: session: 3 is the session of another clone session, ",
            ),
            ({}, "must be a list of entries, groups and clone sessions"),
        ):
            entries.write_text(json.dumps(document))
            assert f"entries.json: {what}" in _bad(capsys, "run", program, *arguments)
        entries.write_text("[{]")
        assert "entries.json:1:3: " in _bad(capsys, "run", program, *arguments)

    def test_recorded_needs_a_job_and_in_needs_out(self, capsys, program, tmp_path):
        capture = _capture(tmp_path / "1.pcap", [])
        assert "--recorded needs --job" in _bad(capsys, "run", program, "--recorded", capture)
        assert "--in needs --out" in _bad(capsys, "run", program, "--in", f"1={capture}")
        both = ("--in", f"1={capture}", "--recorded", capture)
        assert "not allowed with argument" in _bad(capsys, "run", program, *both)

    def test_a_job_for_another_program(self, capsys, program, tmp_path):
        capture = _capture(tmp_path / "1.pcap", [])
        assert _run(capsys, "emit", "-o", tmp_path / "p4")[0] == 0
        arguments = ("--job", tmp_path / "p4" / "job.json", "--in", f"1={capture}", "--out", tmp_path / "out")
        assert "job.json: is for another program than" in _bad(capsys, "run", program, *arguments)


@pytest.mark.parametrize(
    ("test", "status", "what"),
    [
        ("packet 1 01020304\nexpect 0 0102\n", 0, "as expected"),
        ("packet 1 01020304\nexpect 0 0202\n", 1, "1 of its expectations is not met"),
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
