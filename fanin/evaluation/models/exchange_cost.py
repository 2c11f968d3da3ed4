"""INCEPTIONN's analytic model of gradient exchange times (section VIII-D), compared with its measurements.

WA is the paper's worker-aggregator system, INC its ring; +C adds compression in the NICs.

The paper prints model sizes, times and reductions, but not α (latency of a message), β (seconds of a byte on a
link) and γ (seconds of a byte of a sum). β and γ are fitted to AlexNet's times; α is 0, as the paper calls it
negligible. The compression ratios follow from table III. A share of the communication does not shrink with
compression, because the number of packets stays (section VIII-C); this share is also fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fanin.sim.codec import tags
from fanin.sim.ring.collectives import Link, ring, worker_aggregator

WORKERS = 4
ITERATIONS = 100  # iterations that table II's times are for
MIB = 1 << 20  # the paper's MB: AlexNet's 61 million parameters are 233 of them


@dataclass(frozen=True)
class Benchmark:
    """Benchmark of the paper: its columns in table II and figure 12. Times are in seconds of 100 iterations."""

    name: str
    size: float  #: bytes of the model
    local: float  #: forward and backward pass, and copies to and from the GPU
    sum: float  #: sums of gradients at WA's aggregator
    communicate: float  #: communication of WA
    total: float  #: whole training with WA
    share: float  #: printed share of communication in ``total``, in %; HDC's rounded times give 80.0
    saved_communication: float  #: communication that INC saves, in % of WA's
    saved_total: float  #: training time that INC saves, in % of WA's

    @property
    def ratio(self) -> float:
        """Compression ratio for the error bound 2^-10."""
        return tags.ratio(tags.TABLE_III[self.name][0])


BENCHMARKS = (
    Benchmark("AlexNet", 233 * MIB, 3.13 + 16.22 + 5.68, 8.94, 148.71, 196.35, 75.7, 55, 52),
    Benchmark("HDC", 2.5 * MIB, 0.08 + 0.07, 0.09, 1.36, 1.7, 80.2, 39, 38),
    Benchmark("ResNet-50", 98 * MIB, 2.63 + 4.87 + 2.24, 3.68, 60.58, 75.55, 80.2, 58, 49),
    Benchmark("VGG-16", 525 * MIB, 32.25 + 142.34 + 12.09, 19.89, 583.58, 823.65, 70.9, 36, 31),
)
ALEXNET, _, RESNET, _ = BENCHMARKS
SAVED_BY_COMPRESSION = 53.9  # %, INC+C's communication against INC's; ResNet-50's, as 80.7 % against WA's shows
SAVED_BY_WA_C = 30.8  # %, WA+C's communication against WA's


@dataclass(frozen=True)
class Comparison:
    """A number of the model and the paper's number for it."""

    id: str  #: unique identifier
    name: str  #: name for a reader
    model: float  #: the model's number, in ``unit``
    published: float  #: the paper's number, in ``unit``
    unit: str
    fitted: bool = False  #: true if an input was chosen so that the two numbers agree


def aggregator_link() -> Link:
    """Return β and γ of WA, from AlexNet's communication and sum."""
    total_bytes = ITERATIONS * ALEXNET.size
    byte = ALEXNET.communicate / total_bytes / worker_aggregator(WORKERS, 1, Link(0, 1, 0))
    return Link(0, byte, ALEXNET.sum / total_bytes / worker_aggregator(WORKERS, 1, Link(0, 0, 1)))


def ring_link() -> Link:
    """Return β of INC, from AlexNet's saved communication, and WA's γ. INC uses its links less than WA."""
    seconds = (1 - ALEXNET.saved_communication / 100) * ALEXNET.communicate
    byte = seconds / (ITERATIONS * ALEXNET.size) / ring(WORKERS, 1, Link(0, 1, 0))
    return Link(0, byte, aggregator_link().add)


def fixed_share() -> float:
    """Return the share of the communication that compression does not shorten, from ResNet-50's figures."""
    remaining = 1 - SAVED_BY_COMPRESSION / 100
    return (remaining - 1 / RESNET.ratio) / (1 - 1 / RESNET.ratio)


def compressed(share: float, ratio: float) -> float:
    """Return the fraction of a time that remains after compression by ``ratio``; ``share`` of it is fixed."""
    return share + (1 - share) / ratio


def comparisons() -> Iterator[Comparison]:
    """Yield the comparisons with table II and figure 12."""
    for benchmark in BENCHMARKS:
        yield from _uncompressed(benchmark)
    yield from _with_compression()


def _uncompressed(benchmark: Benchmark) -> Iterator[Comparison]:
    fitted, prefix = benchmark is ALEXNET, benchmark.name.lower().replace("-", "_")
    communicate, summing = _aggregator_seconds(benchmark)
    name = f"{benchmark.name}: WA, communicate"
    yield Comparison(f"{prefix}.wa.communicate_s", name, communicate, benchmark.communicate, "s", fitted)
    yield Comparison(
        f"{prefix}.wa.sum_s", f"{benchmark.name}: WA, gradient sum", summing, benchmark.sum, "s", fitted
    )
    remaining = ITERATIONS * ring(WORKERS, benchmark.size, Link(0, ring_link().byte, 0)) / benchmark.communicate
    name = f"{benchmark.name}: INC, communication saved"
    saving = 100 * (1 - remaining)
    yield Comparison(
        f"{prefix}.inc.communication_saved", name, saving, benchmark.saved_communication, "%", fitted
    )
    paper_seconds = (1 - benchmark.saved_communication / 100) * benchmark.communicate
    saving = 100 * (1 - _ring_training_seconds(benchmark, paper_seconds) / benchmark.total)
    yield Comparison(
        f"{prefix}.inc.time_saved", f"{benchmark.name}: INC, time saved", saving, benchmark.saved_total, "%"
    )


def _aggregator_seconds(benchmark: Benchmark) -> tuple[float, float]:
    """Return the seconds of communication and gradient sum with an aggregator."""
    byte, add = Link(0, aggregator_link().byte, 0), Link(0, 0, aggregator_link().add)
    communicate = ITERATIONS * worker_aggregator(WORKERS, benchmark.size, byte)
    return communicate, ITERATIONS * worker_aggregator(WORKERS, benchmark.size, add)


def communication_shares() -> Iterator[Comparison]:
    """Yield figure 3(b): per cent of the training time that a worker-aggregator system communicates."""
    for benchmark in BENCHMARKS:
        communicate, summing = _aggregator_seconds(benchmark)
        total = benchmark.total - benchmark.communicate - benchmark.sum + communicate + summing
        share = 100 * communicate / total
        prefix = benchmark.name.lower().replace("-", "_")
        yield Comparison(
            f"{prefix}.communication", benchmark.name, share, benchmark.share, "%", benchmark is ALEXNET
        )


def _with_compression() -> Iterator[Comparison]:
    remaining = [_remaining_share(benchmark, benchmark.ratio) for benchmark in BENCHMARKS]
    id_, name = "inc_with_c.communication_saved", "INC+C, communication saved"
    yield Comparison(f"{id_}.least", f"{name}, least", 100 * (1 - max(remaining)), 70.9, "%")
    yield Comparison(f"{id_}.most", f"{name}, most", 100 * (1 - min(remaining)), 80.7, "%", True)
    speedups = [speedup(benchmark, benchmark.ratio) for benchmark in BENCHMARKS]
    yield Comparison("inc_with_c.faster.least", "INC+C, faster, least", min(speedups), 2.2, "×")
    yield Comparison("inc_with_c.faster.most", "INC+C, faster, most", max(speedups), 3.1, "×")
    saving = _upward_share() * (1 - compressed(fixed_share(), ALEXNET.ratio))
    id_, name = "alexnet.wa_with_c.communication_saved", "AlexNet: WA+C, communication saved"
    yield Comparison(id_, name, 100 * saving, SAVED_BY_WA_C, "%")


def _remaining_share(benchmark: Benchmark, ratio: float) -> float:
    """Return INC+C's communication as a share of WA's."""
    return (1 - benchmark.saved_communication / 100) * compressed(fixed_share(), ratio)


def speedup(benchmark: Benchmark, ratio: float) -> float:
    """Return the speed-up of INC+C with this compression ratio over WA, for equal iterations (figure 12)."""
    return benchmark.total / _ring_training_seconds(
        benchmark, _remaining_share(benchmark, ratio) * benchmark.communicate
    )


def _upward_share() -> float:
    """Return the share of gradients in an aggregator's communication; the rest are weights."""
    return WORKERS / worker_aggregator(WORKERS, 1, Link(0, 1, 0))


def with_host_codec(benchmark: Benchmark, ratio: float, compress: float, decompress: float) -> float:
    """Return WA's training time with compression on the hosts, relative to that without (figure 7).

    - ``ratio``: compression ratio of the gradients. Packets shrink in number with the bytes.
    - ``compress``, ``decompress``: rates in bytes of floats a second. The aggregator decompresses one worker's
      gradient after another.
    """
    saved_seconds = benchmark.communicate * _upward_share() * (1 - 1 / ratio)
    codec_seconds = ITERATIONS * benchmark.size * (1 / compress + WORKERS / decompress)
    return (benchmark.total - saved_seconds + codec_seconds) / benchmark.total


def _ring_training_seconds(benchmark: Benchmark, communicate: float) -> float:
    """Return the seconds of training with the ring, in which each worker sums a share and updates its model.

    ``communicate``: seconds of communication.
    """
    return benchmark.local + benchmark.sum / WORKERS + communicate


def scaling(workers: int, size: float = ALEXNET.size) -> tuple[float, float]:
    """Return figure 15: exchange times of WA and INC, uncompressed, relative to WA's with four workers."""
    base = worker_aggregator(WORKERS, size, aggregator_link())
    return worker_aggregator(workers, size, aggregator_link()) / base, ring(workers, size, ring_link()) / base
