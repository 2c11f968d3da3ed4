"""INCEPTIONN's NIC as a model: frames are those of its stages, and counters those of its registers."""

from fanin.codec.facts import MAX_FRAME, Inceptionn
from fanin.codec.golden.nic import InceptionnNicModel
from fanin.codec.golden.packet import receive, transmit
from fanin.hdl.codec.nic.registers import nic_registers
from tests.fanin.codec.golden.packets import OTHER_TRAFFIC, frame_of, gradients

CODEC = Inceptionn()
SHRINKS, STAYS = frame_of(gradients(400), "tcp"), frame_of(b"\xff" * 400, "tcp")


def test_frames_are_those_of_the_stages_and_each_is_counted_once():
    nic = InceptionnNicModel(CODEC)
    other = next(iter(OTHER_TRAFFIC.values())) if isinstance(OTHER_TRAFFIC, dict) else OTHER_TRAFFIC[0]
    too_long = bytes(MAX_FRAME + 1)
    wire = [nic.transmit(frame) for frame in (SHRINKS, STAYS, other, too_long)]
    assert wire == [transmit(SHRINKS, CODEC), transmit(STAYS, CODEC), other, None]
    broken = wire[0][:14] + transmit(SHRINKS, CODEC)[14:]
    broken = broken[:54] + b"\xff\xff" + broken[56:]  # stands for more than a frame holds
    back = [nic.receive(frame) for frame in (*wire[:3], too_long, broken)]
    assert back == [receive(wire[0]), STAYS, other, None, None]
    sizes = {
        "tx_bytes_in": len(SHRINKS) + len(STAYS) + len(other) + len(too_long),
        "tx_bytes_out": sum(map(len, wire[:3])),
        "rx_bytes_in": sum(map(len, wire[:3])) + len(too_long) + len(broken),
        "rx_bytes_out": len(SHRINKS) + len(STAYS) + len(other),
    }
    kinds = {f"{way}_{kind}": 1 for way in ("tx", "rx") for kind in ("coded", "raw", "bypassed", "dropped")}
    assert nic.counters == kinds | {"rx_dropped": 2} | sizes


def test_counters_have_the_names_of_the_registers():
    nic = InceptionnNicModel(CODEC)
    for frame in (SHRINKS, STAYS, bytes(60), bytes(MAX_FRAME + 1)):
        nic.transmit(frame)
        nic.receive(transmit(frame, CODEC) or frame)
    assert set(nic.counters) == {r.name for r in nic_registers().registers if r.name.startswith(("tx_", "rx_"))}
