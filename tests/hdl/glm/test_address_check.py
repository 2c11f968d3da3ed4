# amaranth: UnusedElaboratable=no
"""AddressCheck: a region that a reader would not read as the host means it is refused."""

import pytest
from amaranth.sim import Simulator

from fanin.hdl.glm.address_check import MAX_PORTS, AddressCheck

REGION = 3 * 32  # bytes: three words of a sample port, or twelve of the labels'


def _verdict(*, width: int, samples: list[int], labels: int, words: int = 3) -> bool:
    check = AddressCheck(sample_ports=len(samples), sample_bytes=32, label_bytes=8, address_width=width)
    seen = []

    async def body(ctx):
        ctx.set(check.words, words)
        ctx.set(check.label_words, 12)
        await ctx.tick().repeat(3)  # the scan is somewhere when the addresses change
        for port, address in zip(check.samples, samples, strict=True):
            ctx.set(port, address)
        ctx.set(check.labels, labels)
        await ctx.tick().repeat(check.latency)
        seen.append(bool(ctx.get(check.ok)))

    sim = Simulator(check)
    sim.add_clock(1e-8)
    sim.add_testbench(body)
    sim.run()
    return seen[0]


@pytest.mark.parametrize("width", [16, 32, 37, 38, 40, 64])
def test_every_region_must_be_aligned_and_end_within_the_address_space(width):
    end = 1 << width
    assert _verdict(width=width, samples=[0, 32], labels=8)
    assert _verdict(width=width, samples=[end - REGION, 0], labels=end - REGION)
    for misaligned in (1, 16, 31):
        assert not _verdict(width=width, samples=[64 + misaligned, 0], labels=0)
        assert not _verdict(width=width, samples=[0, 64 + misaligned], labels=0)
    assert not _verdict(width=width, samples=[0, 0], labels=4)
    assert not _verdict(width=width, samples=[end - REGION + 32, 0], labels=0)
    assert not _verdict(width=width, samples=[0, end - 32], labels=0)
    assert not _verdict(width=width, samples=[0, 0], labels=end - REGION + 8)


def test_the_largest_region_and_the_most_ports():
    most = (1 << 32) - 1
    samples = [0] * (MAX_PORTS - 1)
    assert _verdict(width=40, samples=samples, labels=0, words=most)
    assert _verdict(width=40, samples=[(1 << 40) - most * 32, *samples[1:]], labels=0, words=most)
    assert not _verdict(width=40, samples=[(1 << 40) - most * 32 + 32, *samples[1:]], labels=0, words=most)
    assert not _verdict(width=36, samples=samples, labels=0, words=most)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sample_ports": 0}, "sample_ports must be from 1 to 16, not 0"),
        ({"sample_bytes": 3}, "sample_bytes must be a power of two, not 3"),
        ({"label_bytes": 0}, "label_bytes must be a power of two, not 0"),
    ],
)
def test_bad_parameters_are_refused(parameters, message):
    good = {"sample_ports": 2, "sample_bytes": 32, "label_bytes": 8, "address_width": 40}
    with pytest.raises(ValueError, match=message):
        AddressCheck(**good | parameters)
