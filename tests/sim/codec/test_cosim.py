"""The comparison of the codecs' RTL with NumPy: what it finds, and (slow) that there is nothing to be found."""

import numpy as np
import pytest

from fanin.codec.facts import Bf16, Bfp, Fp16, Inceptionn, Mode, Mx
from fanin.codec.formats import Element, Rounding
from fanin.codec.golden import bfp
from fanin.codec.golden.samples import samples
from fanin.evaluation.bench import codec as bench
from fanin.sim.codec import cosim as codec
from fanin.sim.codec.cosim import CodecRtl, decode_frame, encode_frame, encode_frames, make_frames
from fanin.sim.cosim.stream_file import StreamRun

CONFIGS = [Inceptionn(6, Mode.PUBLISHED, 16), Inceptionn(), Bfp(8, 4), Bfp(8, 7, 5, 8)]


class _Numpy:
    """In place of a Verilated component: NumPy at a word a cycle, with a fault if wanted."""

    latency = 3

    def __init__(self, component, quiet=False):
        component._MustUse__used = True
        self.fault = lambda frame: frame
        self.config = component.words.format.config if hasattr(component, "words") else None
        self.group = getattr(component, "group", 8)

    def run(self, frames, *, lengths=(), registers=None, stalls=(0, 0), seed=0):
        config = self.config or Inceptionn(group=self.group)
        if registers:
            config = Inceptionn(registers["bound"], Mode(registers["mode"]), self.group)
        if lengths:
            out = [decode_frame(f, n, config) for f, n in zip(frames, lengths, strict=True)]
        else:
            out = encode_frames(frames, config, 64)
        out = [self.fault(frame) for frame in out]
        taken = np.arange(sum(-(-len(frame) // 64) for frame in frames), dtype=np.uint32)
        return StreamRun(out, np.zeros(len(out), dtype=np.bool_), taken, taken + self.latency, 0.5)


@pytest.fixture
def rtl(monkeypatch):
    monkeypatch.setattr(codec, "StreamFile", _Numpy)
    return CodecRtl


def _mutated(at, bit):
    return lambda frame: frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :] if len(frame) > at else frame


@pytest.mark.parametrize("config", CONFIGS)
def test_equal_streams_and_values_have_no_mismatch(rtl, config):
    there, back = rtl(config).check(config, samples(5000, 2), seed=4)
    assert (there.direction, there.values, there.mismatches, there.first) == ("compress", 5000, 0, "")
    assert (back.direction, back.values, back.mismatches, back.first) == ("decompress", 5000, 0, "")
    assert there.groups >= 5000 / (512 / 32)
    assert there.cycles_per_group > 0


@pytest.mark.parametrize("config", CONFIGS)
def test_a_wrong_bit_is_found_and_shown(rtl, config):
    pair = rtl(config)
    pair.compressor.fault = pair.decompressor.fault = _mutated(5, 0x10)
    there, back = pair.check(config, samples(5000, 2), seed=4)
    assert there.mismatches > 0
    assert there.first.startswith("frame 0: byte 5 of the stream is 0x")
    assert back.mismatches == len([frame for frame in make_frames(samples(5000, 2), 4) if len(frame) > 5])
    bits = samples(5000, 2).view(np.uint32)[1]
    assert back.first.startswith(f"frame 0: value 1, 0x{bits:08x}, becomes 0x")


@pytest.mark.parametrize("config", CONFIGS)
def test_frames_that_are_too_short_count_whole(rtl, config):
    pair = rtl(config)
    pair.compressor.fault = pair.decompressor.fault = lambda frame: frame[:-1]
    there, back = pair.check(config, samples(5000, 2), seed=4)
    assert there.mismatches == back.mismatches == 5000
    length = len(make_frames(samples(5000, 2), 4)[0])
    assert back.first == f"frame 0: {length - 1} bytes, not {length}"


def test_a_stream_that_differs_in_no_value_is_a_mismatch(rtl):
    pair = rtl(Bfp(16, 3))  # 72 bits of a block: 16 bytes hold one, and 7 bytes of the next
    golden = bfp.encode(np.zeros(16, dtype=np.float32), Bfp(16, 3))
    pair.compressor.fault = lambda frame: b"\x01" + frame[1:] if frame == golden else frame
    there, _ = pair.check(Bfp(16, 3), np.zeros(16, dtype=np.float32), seed=0)
    assert (there.mismatches, there.first[:40]) == (1, "frame 0: byte 0 of the stream is 0x01, n")


def test_an_error_is_a_mismatch(rtl, monkeypatch):
    pair = rtl(Inceptionn())
    run = pair.decompressor.run

    def wrong(*args, **options):
        result = run(*args, **options)
        result.errors[0] = True
        return result

    monkeypatch.setattr(pair.decompressor, "run", wrong)
    _, back = pair.check(Inceptionn(), samples(100, 2), seed=4)
    assert (back.mismatches, back.first) == (1, "error is set")


def test_frames_have_all_values_but_bytes_of_their_last():
    own = samples(3000, 1)
    frames, at = make_frames(own, 5), 0
    for frame in frames:
        whole = own[at : at + -(-len(frame) // 4)]
        assert whole.tobytes().startswith(frame)
        at += len(whole)
    assert at == 3000
    assert {len(frame) % 4 for frame in make_frames(samples(100_000, 1), 5)} == {0, 1, 2, 3}
    assert make_frames(own, 5) == frames != make_frames(own, 6)


def test_tails_travel_raw_or_filled_up_with_zeros():
    frame = np.array([0.125, 0.3], dtype="<f4").tobytes()[:7]
    assert encode_frame(frame, Inceptionn()) == bytes([0b1101, 0, 0b0010000]) + frame[4:] + b"\0"
    assert decode_frame(encode_frame(frame, Inceptionn()), 7, Inceptionn()) == frame
    filled = np.frombuffer(frame + b"\0", dtype="<f4")
    assert encode_frame(frame, Bfp()) == bfp.encode(filled, Bfp())
    assert decode_frame(encode_frame(frame, Bfp()), 7, Bfp()) == bfp.roundtrip(filled, Bfp()).tobytes()[:7]


def test_the_bench_adds_latencies_and_divides_groups_by_cycles(rtl):
    for config in CONFIGS:
        pair = rtl(config)
        cycles, ns = bench.latency("x", config, pair)
        assert (cycles.value, cycles.limit, ns.value) == (6, 20, 24.0)
        rates = list(bench.throughput("x", config, pair))
        assert rates[0].name == "x: compressor, compressible"
        assert len(rates) == 4
    (equal,) = bench.equality("x", Bfp(), rtl(Bfp()), 500)
    assert (equal.value, equal.limit, equal.ok) == (0, 0, True)
    published, strict = bench.equality("x", Inceptionn(), rtl(Inceptionn()), 300)
    assert (published.name, strict.name) == ("x, published: RTL ≠ NumPy", "x, strict: RTL ≠ NumPy")
    assert strict.note == "15 × 300 values each way"


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize(
    "config",
    [
        *(Inceptionn(), Inceptionn(group=16), Bfp(), Bfp(4, 3), Bfp(64, 15), Bfp(4, 7, 5, 8)),
        *(Mx(), Mx(Element.E2M1, 16), Mx(Element.INT8, 64, Rounding.STOCHASTIC)),
        *(Bf16(), Fp16(), Fp16(Rounding.STOCHASTIC)),
    ],
    ids=str,
)
def test_rtl_is_numpy_bit_for_bit(config):
    pair = CodecRtl(config, quiet=True)
    configs = [config]
    if isinstance(config, Inceptionn):
        configs = [Inceptionn(bound, mode, config.group) for bound in (1, 10, 15) for mode in Mode]
    for seed, each in enumerate(configs):
        for stalls in (0.0, 0.0), (0.2, 0.3):
            for outcome in pair.check(each, samples(100_000, seed), seed=seed, stalls=stalls):
                assert outcome.mismatches == 0, f"{each}, seed {seed}: {outcome.first}"
