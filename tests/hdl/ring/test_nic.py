# amaranth: UnusedElaboratable=no
"""A smart NIC whose ring does not run: what its host sends and receives, and what it counts."""

import random
from dataclasses import replace

import pytest

from fanin.hdl.bus.axi4 import Resp
from fanin.hdl.ring.nic import RingNic
from fanin.hdl.ring.registers import NIC_IDENTITY
from fanin.host.driver import AsyncRegisterDriver
from fanin.ring.driver import RingDriver, RingNicDriver
from fanin.ring.facts import PRESETS
from fanin.wire.link import ETHERTYPE_LINK
from tests.hdl.bus.test_registers import Host
from tests.hdl.stream.frames import beats, frames
from tests.support import new_seed, simulate

CONFIG = replace(PRESETS["tiny"], address_width=16)
MAX_FRAME = 600


def frame_of(rng, size, *, ring=False):
    ethertype = ETHERTYPE_LINK.to_bytes(2, "big") if ring else b"\x08\x00"
    return rng.randbytes(12) + ethertype + rng.randbytes(size - 14)


def bus(ctx, dut, rng):
    host = Host(ctx, dut.axil, rng, patience=0.0)

    async def read32(address):
        word, response = await host.read(address)
        assert response is Resp.OKAY
        return word

    async def write32(address, value):
        assert await host.write(address, value) is Resp.OKAY

    return AsyncRegisterDriver(dut.register_map, read32, write32)


@pytest.mark.slow
def test_frames_pass_both_ways_and_are_counted():
    rng = random.Random(seed := new_seed())
    dut, driver = RingNic(config=CONFIG, max_frame=MAX_FRAME), RingNicDriver(CONFIG)
    sizes = [14, 32, 33, 60, 64, MAX_FRAME - 1, MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME]
    sent = [frame_of(rng, rng.choice(sizes)) for _ in range(60)]
    came = [frame_of(rng, rng.choice(sizes), ring=rng.random() < 0.3) for _ in range(60)]
    errors = {n for n in range(60) if rng.random() < 0.2}
    left = [frame for frame in sent if len(frame) <= MAX_FRAME]
    others = [n for n, frame in enumerate(came) if int.from_bytes(frame[12:14], "big") != ETHERTYPE_LINK]
    handed = [came[n] for n in others if n not in errors and len(came[n]) <= MAX_FRAME]
    width, found = CONFIG.width, {}

    async def host(ctx):
        registers = bus(ctx, dut, rng)
        driver.check_identity(await registers.run(driver.identify()))
        await registers.run(driver.share(15))
        assert await registers.read("host_share") == 15
        assert await registers.read("max_host_frame") == MAX_FRAME
        await ctx.tick().repeat(6000)
        found.update(driver.counters_of(await registers.run(driver.counters())))

    log = simulate(
        dut,
        drive={
            "host_tx": list(beats(sent, width, errors=None)),
            "mac_rx": list(beats(came, width, errors=errors)),
        },
        collect={
            "mac_tx": len(list(beats(left, width))),
            "host_rx": len(list(beats(handed, width))),
        },
        stall={"host_tx": 0.3, "mac_tx": 0.3, "mac_rx": 0.3},  # a host that stalls may lose frames
        processes=[host],
        seed=seed,
        idle=6000,
    )
    assert frames(payload for _, payload in log["mac_tx"]) == left
    assert frames(payload for _, payload in log["host_rx"]) == handed
    bad = sum(n in errors for n in others)
    assert {name: count for name, count in found.items() if name.startswith("host")} == {
        "host_tx_frames": len(left),
        "host_tx_dropped": len(sent) - len(left),
        "host_rx_frames": len(handed),
        "host_rx_dropped": len(others) - len(handed) - bad,
        "host_rx_bad_fcs": bad,
    }


def test_its_registers_are_told_from_those_of_a_ring_node():
    nic, node = RingNicDriver(CONFIG), RingDriver(CONFIG)
    values = {"id": NIC_IDENTITY}
    assert nic.registers["host_share"].reset == 2
    with pytest.raises(KeyError):
        node.registers["host_share"]
    with pytest.raises(ValueError, match=f"the node's id must be .*, not {NIC_IDENTITY}"):
        node.check_identity([values["id"], *[0] * (len(node.identify().operations) - 1)])


@pytest.mark.parametrize("max_frame", [59, 16385])
def test_the_longest_frame_has_bounds(max_frame):
    with pytest.raises(ValueError, match=f"max_frame must be from 60 to 16384, not {max_frame}"):
        RingNic(config=CONFIG, max_frame=max_frame)
