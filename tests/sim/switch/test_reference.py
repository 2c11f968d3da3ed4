"""The reference switch against every rule of docs/reference/aggregation-packet.md and
docs/systems/aggregation.md.
"""

import random
import struct

import pytest

from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.aggregation import (
    AggPacket,
    Encap,
    Kind,
    Protocol,
    decode_payload,
    encode,
    header_length,
    payload_length,
)
from fanin.wire.ethernet import Endpoint, internet_checksum
from tests.support import new_seed

SWITCH = Endpoint(mac=0x02_00_00_00_FF_FE, ip=0x0A0000FE, port=40000)
BOTH = pytest.mark.parametrize("encap", list(Encap))


def endpoint(worker):
    return Endpoint(mac=0x02_00_00_00_00_01 + worker, ip=0x0A000001 + worker, port=34997 + worker)


def job(workers=2, *, id=7, base=8, slots=4, ports=None):
    ports = ports or list(range(workers))
    return Job(id, base, slots, tuple(Member(ports[w], 1 << w, endpoint(w)) for w in range(workers)))


class Bench:
    """A switch with one job, and the workers' side of it."""

    def __init__(self, workers=2, *, encap=Encap.L2, ports=None, protocol=Protocol.P4SGD, **kwargs):
        self.encap = encap
        self.job = job(workers, ports=ports, **kwargs)
        self.switch = ReferenceSwitch(endpoint=SWITCH, ports=8, protocol=protocol)
        self.switch.add_job(self.job)

    def frame(self, worker, kind, *, slot=8, round=1, values=(0,) * 8, job=7, version=1, bitmap=None):
        bitmap = 1 << worker if bitmap is None else bitmap
        packet = AggPacket(kind, job, slot, round, bitmap, tuple(values), version)
        to = Endpoint(mac=0x02_12_34_56_78_9A, ip=SWITCH.ip, port=34997)  # the switch does not look at the MAC
        return encode(packet, encap=self.encap, source=endpoint(worker), destination=to)

    def send(self, worker, kind, *, port=None, **kwargs):
        """Receivers' ports and packets."""
        port = self.job.members[worker].port if port is None else port
        out = self.switch.inject(port, self.frame(worker, kind, **kwargs), 1234)
        assert all(time == 1234 for _, _, time in out)
        offset = header_length(self.encap)
        return [(to, decode_payload(frame[offset:])) for to, frame, _ in out]

    @property
    def counted(self):
        """Counters that are not zero."""
        both = self.switch.job_counters(self.job.id).as_dict() | self.switch.counters().as_dict()
        return {name: value for name, value in both.items() if value}


@BOTH
def test_result_goes_to_all_members_when_the_last_has_contributed(encap):
    bench = Bench(3, encap=encap)
    assert bench.send(0, Kind.AGG, values=range(8)) == []
    assert bench.send(2, Kind.AGG, values=[10] * 8) == []
    out = bench.send(1, Kind.AGG, values=[-100] * 8)
    full = AggPacket(Kind.RESULT, 7, 8, 1, 0b111, tuple(v - 90 for v in range(8)))
    assert out == [(0, full), (1, full), (2, full)]
    assert bench.counted == {"aggregated": 3, "results": 1}


@BOTH
def test_confirm_goes_to_all_members_with_the_values_of_the_last_ack(encap):
    bench = Bench(2, encap=encap)
    assert bench.send(0, Kind.ACK, values=[1] * 8) == []
    full = AggPacket(Kind.CONFIRM, 7, 8, 1, 0b11, (2,) * 8)
    assert bench.send(1, Kind.ACK, values=[2] * 8) == [(0, full), (1, full)]
    assert bench.counted == {"acknowledged": 2, "confirms": 1}


def test_a_single_member_is_answered_at_once():
    bench = Bench(1)
    assert bench.send(0, Kind.AGG, values=[5] * 8) == [(0, AggPacket(Kind.RESULT, 7, 8, 1, 1, (5,) * 8))]
    assert bench.send(0, Kind.ACK) == [(0, AggPacket(Kind.CONFIRM, 7, 8, 1, 1))]


@pytest.mark.parametrize(("kind", "answer"), [(Kind.AGG, Kind.RESULT), (Kind.ACK, Kind.CONFIRM)])
def test_a_premature_retransmission_is_counted_and_changes_nothing(kind, answer):
    bench = Bench(2)
    bench.send(0, kind, values=[3] * 8)
    assert bench.send(0, kind, values=[3] * 8) == []
    out = bench.send(1, kind, values=[4] * 8)
    assert {p.kind for _, p in out} == {answer}
    assert out[0][1].values == ((7,) * 8 if kind == Kind.AGG else (4,) * 8)
    assert bench.counted["duplicate"] == 1
    assert "replies" not in bench.counted


@pytest.mark.parametrize(("kind", "answer"), [(Kind.AGG, Kind.RESULT), (Kind.ACK, Kind.CONFIRM)])
def test_a_duplicate_of_a_finished_round_is_answered_to_its_sender_alone(kind, answer):
    bench = Bench(3)
    for worker in range(3):
        bench.send(worker, kind, values=[worker + 1] * 8)
    values = (6,) * 8 if kind == Kind.AGG else (9,) * 8
    out = bench.send(1, kind, values=[9] * 8)
    assert out == [(1, AggPacket(answer, 7, 8, 1, 0b111, values))]
    assert bench.counted["duplicate"] == 1
    assert bench.counted["replies"] == 1
    assert bench.counted["results" if kind == Kind.AGG else "confirms"] == 1


@pytest.mark.parametrize("kind", [Kind.AGG, Kind.ACK])
def test_a_late_duplicate_of_an_old_round_is_stale(kind):
    bench = Bench(2)
    for number in (1, 2, 3):
        bench.send(0, kind, round=number)
        bench.send(1, kind, round=number)
    for number in (1, 2, 5, 0xFFFFFFFF):
        assert bench.send(0, kind, round=number) == []
    assert bench.counted["stale"] == 4
    assert "duplicate" not in bench.counted


def test_the_next_round_replaces_sums_and_members():
    bench = Bench(2)
    bench.send(0, Kind.AGG, values=[1] * 8)
    bench.send(1, Kind.AGG, values=[1] * 8)
    assert bench.send(0, Kind.AGG, round=2, values=[10] * 8) == []
    assert bench.send(1, Kind.AGG, round=1, values=[1] * 8) == []  # late: its round is over
    out = bench.send(1, Kind.AGG, round=2, values=[20] * 8)
    assert out[0][1].values == (30,) * 8
    assert bench.counted["stale"] == 1


def test_acknowledgement_has_a_state_of_its_own():
    bench = Bench(2)
    for worker in range(2):
        bench.send(worker, Kind.AGG)
    bench.send(0, Kind.ACK)
    assert bench.send(0, Kind.AGG, round=2) == []  # sent ahead: must not touch the ACKs of round 1
    assert [p.kind for _, p in bench.send(1, Kind.ACK)] == [Kind.CONFIRM] * 2
    assert bench.counted["confirms"] == 1


def test_a_fresh_slot_takes_round_1_only():
    bench = Bench(1)
    assert bench.send(0, Kind.AGG, round=2) == []
    assert bench.counted == {"stale": 1}
    assert len(bench.send(0, Kind.AGG, round=1)) == 1


def test_sums_wrap_as_hardware_does():
    bench = Bench(2)
    bench.send(0, Kind.AGG, values=[2**31 - 1, -(2**31), -1, 0, 1, 2, 3, 4])
    out = bench.send(1, Kind.AGG, values=[1, -1, 1, 0, 0, 0, 0, -(2**31)])
    assert out[0][1].values == (-(2**31), 2**31 - 1, 0, 0, 1, 2, 3, 4 - 2**31)


@BOTH
@pytest.mark.parametrize(
    "fault",
    [
        {"version": 0},
        {"version": 2},
        {"round": 0},
        {"kind": 4},
        {"kind": 15},
    ],
)
def test_malformed_is_dropped_before_anything_else_is_asked(encap, fault):
    bench = Bench(1, encap=encap)
    assert bench.send(0, **({"kind": Kind.AGG, "job": 99} | fault)) == []  # of a foreign job at that
    assert bench.counted == {"malformed": 1}


@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.CONFIRM])
def test_an_answer_to_a_switch_without_parent_is_foreign(kind):
    bench = Bench(1)
    assert bench.send(0, kind) == []
    assert bench.counted == {"foreign": 1}


def test_switchml_has_no_ack_and_aggregates_alike():
    bench = Bench(2, protocol=Protocol.SWITCHML)
    assert bench.send(0, Kind.ACK) == []
    assert bench.counted == {"malformed": 1}
    for round_ in (1, 2):
        assert bench.send(0, Kind.AGG, round=round_, values=[round_] * 8) == []
        out = bench.send(1, Kind.AGG, round=round_, values=[1] * 8)
        assert out == [(w, AggPacket(Kind.RESULT, 7, 8, round_, 0b11, (round_ + 1,) * 8)) for w in range(2)]
    assert [to for to, _ in bench.send(1, Kind.AGG, round=2)] == [1], "it asks again, and gets it alone"
    assert bench.send(1, Kind.AGG, round=1) == []
    assert bench.counted == {
        "malformed": 1,
        "aggregated": 4,
        "results": 2,
        "duplicate": 1,
        "replies": 1,
        "stale": 1,
    }


@BOTH
def test_fewer_values_than_the_switch_adds_is_malformed(encap):
    bench = Bench(1, encap=encap)
    frame = bench.frame(0, Kind.AGG)
    assert bench.switch.inject(0, frame[: header_length(encap) + payload_length() - 1], 0) == []
    assert bench.counted == {"malformed": 1}
    assert bench.switch.inject(0, frame[:13], 0) == []
    assert bench.counted == {"malformed": 2}


@pytest.mark.parametrize(
    "fault",
    [{"job": 8}, {"slot": 7}, {"slot": 12}, {"bitmap": 2}, {"bitmap": 3}, {"bitmap": 0}, {"port": 1}],
)
def test_foreign_is_dropped(fault):
    bench = Bench(1)
    assert bench.send(0, Kind.AGG, **fault) == []
    assert bench.send(0, Kind.ACK, **fault) == []
    assert bench.counted == {"foreign": 2}


@BOTH
def test_bytes_beyond_the_values_pass_unchanged(encap):
    bench = Bench(1, encap=encap)
    tail = bytes(range(1, 40))
    frame = bench.frame(0, Kind.AGG) + tail
    ((_, out, _),) = bench.switch.inject(0, frame, 0)
    end = header_length(encap) + payload_length()
    assert out[end:] == frame[end:]
    assert len(out) == len(frame)


def test_l2_answer_has_the_members_mac():
    bench = Bench(2)
    bench.send(0, Kind.AGG)
    for port, out, _ in bench.switch.inject(1, bench.frame(1, Kind.AGG), 0):
        assert out[:6] == endpoint(port).mac.to_bytes(6, "big")
        assert out[6:14] == SWITCH.mac.to_bytes(6, "big") + b"\x88\xb5"


def test_udp_answer_has_the_members_addresses_and_right_checksums():
    bench = Bench(2, encap=Encap.UDP)
    bench.send(0, Kind.AGG)
    frame = bytearray(bench.frame(1, Kind.AGG))
    frame[15] = 0x10  # ToS
    frame[24:26] = struct.pack(">H", internet_checksum(bytes(frame[14:24]) + b"\0\0" + bytes(frame[26:34])))
    frame[40:42] = b"\x12\x34"  # a UDP checksum, which the switch does not keep
    out = bench.switch.inject(1, bytes(frame), 0)
    assert [port for port, _, _ in out] == [0, 1]
    for port, answer, _ in out:
        to = endpoint(port)
        assert answer[:12] == to.mac.to_bytes(6, "big") + SWITCH.mac.to_bytes(6, "big")
        assert answer[15] == 0x10
        assert internet_checksum(answer[14:34]) == 0
        assert answer[26:34] == struct.pack(">II", SWITCH.ip, to.ip)
        assert answer[34:38] == struct.pack(">HH", SWITCH.port, to.port)
        assert answer[38:40] == frame[38:40]
        assert answer[40:42] == b"\0\0"


def test_a_bad_ipv4_checksum_is_malformed():
    bench = Bench(1, encap=Encap.UDP)
    frame = bytearray(bench.frame(0, Kind.AGG))
    frame[24] ^= 1
    assert bench.switch.inject(0, bytes(frame), 0) == []
    assert bench.counted == {"malformed": 1}


@pytest.mark.parametrize(
    ("offset", "value"),
    [(12, 0x81), (14, 0x46), (14, 0x65), (20, 0x20), (21, 0x01), (23, 6), (36, 0)],
    ids=["vlan", "options", "version", "more-fragments", "fragment", "tcp", "port"],
)
def test_what_is_not_the_aggregation_packet_is_other_traffic(offset, value):
    bench = Bench(2, encap=Encap.UDP)
    frame = bytearray(bench.frame(0, Kind.AGG))
    frame[:6] = endpoint(1).mac.to_bytes(6, "big")
    frame[offset] = value
    assert bench.switch.inject(0, bytes(frame), 5) == [(1, bytes(frame), 5)]
    assert bench.counted == {"forwarded": 1}


@pytest.mark.parametrize("destination", ["ffffffffffff", "01005e000001", "02aabbccddee"])
def test_broadcast_multicast_and_unknown_are_flooded_but_for_the_ingress_port(destination):
    bench = Bench(2)
    frame = bytes.fromhex(destination) + bytes(6) + b"\x08\x06" + bytes(46)
    assert bench.switch.inject(3, frame, 9) == [(port, frame, 9) for port in (0, 1, 2, 4, 5, 6, 7)]
    assert bench.counted == {"flooded": 1}


def test_a_known_mac_on_the_ingress_port_is_not_sent_back():
    bench = Bench(2)
    frame = endpoint(1).mac.to_bytes(6, "big") + bytes(6) + b"\x08\x06" + bytes(46)
    assert bench.switch.inject(1, frame, 0) == []


def test_several_members_may_share_a_port():
    bench = Bench(3, ports=[2, 2, 5])
    bench.send(0, Kind.AGG, values=[1] * 8)
    bench.send(1, Kind.AGG, values=[2] * 8)
    out = bench.send(2, Kind.AGG, values=[4] * 8)
    assert [(port, p.values[0]) for port, p in out] == [(2, 7), (2, 7), (5, 7)]


def test_jobs_do_not_meet():
    bench = Bench(2)
    bench.switch.add_job(job(2, id=9, base=0, slots=8))
    bench.send(0, Kind.AGG, values=[1] * 8)
    assert bench.send(0, Kind.AGG, job=9, slot=0, values=[5] * 8) == []
    assert bench.send(0, Kind.AGG, job=9, slot=8) == []  # the other job's slot
    assert bench.send(1, Kind.AGG, job=9, slot=0, values=[5] * 8)[0][1].values == (10,) * 8
    assert bench.switch.job_counters(9).aggregated == 2
    assert bench.switch.job_counters(7).aggregated == 1
    assert bench.switch.counters().foreign == 1


def test_a_new_job_finds_its_slots_reset():
    bench = Bench(1)
    bench.send(0, Kind.AGG)
    bench.switch.remove_job(7)
    assert bench.send(0, Kind.AGG) == []
    assert bench.switch.counters().foreign == 1
    bench.switch.add_job(job(1, id=10))
    assert len(bench.send(0, Kind.AGG, job=10)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id": 256}, "job id must be 0 to 255, not 256"),
        ({"slots": 3}, "slots must be a power of two, not 3"),
        ({"base": 2}, "base must be a multiple of slots"),
        ({"base": 65536}, "base must be a multiple of slots"),
        ({"members": ()}, "members must be 1 to 32"),
        ({"members": (Member(0, 1, endpoint(0)),) * 2}, "bitmap each of their own"),
        ({"members": (Member(0, 3, endpoint(0)),)}, "exactly one of 32 bits"),
    ],
)
def test_a_bad_job_is_refused(arguments, message):
    good = {"id": 1, "base": 0, "slots": 4, "members": (Member(0, 1, endpoint(0)),)}
    with pytest.raises(ValueError, match=message):
        Job(**(good | arguments))


def test_an_id_a_slot_or_a_port_cannot_be_taken_twice():
    bench = Bench(1)
    with pytest.raises(ValueError, match="job 7 exists"):
        bench.switch.add_job(job(1, base=0))
    with pytest.raises(ValueError, match="slots of job 1 overlap those of job 7"):
        bench.switch.add_job(job(1, id=1, base=0, slots=16))
    with pytest.raises(ValueError, match="port must be 0 to 7, not 8"):
        bench.switch.add_job(job(1, id=1, base=0, ports=[8]))


def test_any_mix_of_retransmissions_gives_each_round_its_sum_once():
    rng = random.Random(new_seed())
    workers, slots, rounds = 4, 4, 20
    bench = Bench(workers, slots=slots)
    for number in range(1, rounds + 1):
        for slot in range(8, 8 + slots):
            parts = [[rng.randrange(-(2**20), 2**20) for _ in range(8)] for _ in range(workers)]
            sends = [w for w in range(workers) for _ in range(rng.randint(1, 3))]
            rng.shuffle(sends)
            fulls = []
            for worker in sends:
                values = parts[worker]
                fulls += bench.send(worker, Kind.AGG, slot=slot, round=number, values=values)
                if number > 1 and rng.random() < 0.5:  # late, of the round before
                    assert bench.send(worker, Kind.AGG, slot=slot, round=number - 1) in ([], fulls[:0])
            total = tuple(map(sum, zip(*parts, strict=True)))
            assert {p.values for _, p in fulls} == {total}
            assert {port for port, _ in fulls} == set(range(workers))
    assert bench.counted["results"] == rounds * slots
    assert bench.counted["aggregated"] == rounds * slots * workers
