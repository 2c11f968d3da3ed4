"""INCEPTIONN's analytic gradient exchange times (section VIII-D) beside its measurements (table II, figures).

The paper prints model sizes, times and reductions, but not α, β and γ. β and γ are fitted to AlexNet's times; α
is left out, as the paper calls it negligible. The compression ratios follow from table III. A packet costs time
apart from its bytes, and compression does not reduce the number of packets (section VIII-C): this share is also
fitted.
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
    """Benchmark of the paper: its columns in table II and figure 12.

    Times are in seconds of 100 iterations. ``share`` is the printed share of communication in per cent; the
    reductions of figure 12 are in per cent of WA's.
    """

    name: str
    size: float
    local: float  # forward, backward, GPU copy
    sum: float
    communicate: float
    total: float
    share: float  # share of communication; HDC's rounded times give 80.0
    saved_communication: float  # by INC instead of WA
    saved_total: float

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
    """A figure of the model beside the paper's; if ``fitted``, an input was chosen so that they agree.

    ``id``: its identifier among them.
    """

    id: str
    name: str
    model: float
    published: float
    unit: str
    fitted: bool = False


def aggregator_link() -> Link:
    """Return β and γ of the worker-aggregator system, from AlexNet's communication and sum."""
    one = ITERATIONS * ALEXNET.size
    byte = ALEXNET.communicate / one / worker_aggregator(WORKERS, 1, Link(0, 1, 0))
    return Link(0, byte, ALEXNET.sum / one / worker_aggregator(WORKERS, 1, Link(0, 0, 1)))


def ring_link() -> Link:
    """Return β of the ring, from AlexNet's saved communication: it uses its links less than the aggregator."""
    seconds = (1 - ALEXNET.saved_communication / 100) * ALEXNET.communicate
    byte = seconds / (ITERATIONS * ALEXNET.size) / ring(WORKERS, 1, Link(0, 1, 0))
    return Link(0, byte, aggregator_link().add)


def fixed_share() -> float:
    """Return the share of the communication that compression does not shorten, from ResNet-50's figures."""
    left = 1 - SAVED_BY_COMPRESSION / 100
    return (left - 1 / RESNET.ratio) / (1 - 1 / RESNET.ratio)


def compressed(share: float, ratio: float) -> float:
    """Return the rest of a time after compression by ``ratio``, if ``share`` of it is fixed."""
    return share + (1 - share) / ratio


def comparisons() -> Iterator[Comparison]:
    """Yield table II and figure 12, model beside paper."""
    for of in BENCHMARKS:
        yield from _uncompressed(of)
    yield from _with_compression()


def _uncompressed(of: Benchmark) -> Iterator[Comparison]:
    fitted, place = of is ALEXNET, of.name.lower().replace("-", "_")
    communicate, summing = _aggregator_seconds(of)
    name = f"{of.name}: WA, communicate"
    yield Comparison(f"{place}.wa.communicate_s", name, communicate, of.communicate, "s", fitted)
    yield Comparison(f"{place}.wa.sum_s", f"{of.name}: WA, gradient sum", summing, of.sum, "s", fitted)
    left = ITERATIONS * ring(WORKERS, of.size, Link(0, ring_link().byte, 0)) / of.communicate
    name = f"{of.name}: INC, communication saved"
    saved = 100 * (1 - left)
    yield Comparison(f"{place}.inc.communication_saved", name, saved, of.saved_communication, "%", fitted)
    measured = (1 - of.saved_communication / 100) * of.communicate
    saved = 100 * (1 - _total(of, measured) / of.total)
    yield Comparison(f"{place}.inc.time_saved", f"{of.name}: INC, time saved", saved, of.saved_total, "%")


def _aggregator_seconds(of: Benchmark) -> tuple[float, float]:
    """Return the seconds of communication and gradient sum with an aggregator."""
    byte, add = Link(0, aggregator_link().byte, 0), Link(0, 0, aggregator_link().add)
    communicate = ITERATIONS * worker_aggregator(WORKERS, of.size, byte)
    return communicate, ITERATIONS * worker_aggregator(WORKERS, of.size, add)


def communication_shares() -> Iterator[Comparison]:
    """Yield figure 3(b): per cent of the training time that a worker-aggregator system communicates."""
    for of in BENCHMARKS:
        communicate, summing = _aggregator_seconds(of)
        whole = of.total - of.communicate - of.sum + communicate + summing
        share = 100 * communicate / whole
        place = of.name.lower().replace("-", "_")
        yield Comparison(f"{place}.communication", of.name, share, of.share, "%", of is ALEXNET)


def _with_compression() -> Iterator[Comparison]:
    left = [_left(of, of.ratio) for of in BENCHMARKS]
    place, name = "inc_with_c.communication_saved", "INC+C, communication saved"
    yield Comparison(f"{place}.least", f"{name}, least", 100 * (1 - max(left)), 70.9, "%")
    yield Comparison(f"{place}.most", f"{name}, most", 100 * (1 - min(left)), 80.7, "%", True)
    faster = [speedup(of, of.ratio) for of in BENCHMARKS]
    yield Comparison("inc_with_c.faster.least", "INC+C, faster, least", min(faster), 2.2, "×")
    yield Comparison("inc_with_c.faster.most", "INC+C, faster, most", max(faster), 3.1, "×")
    saved = _upward_share() * (1 - compressed(fixed_share(), ALEXNET.ratio))
    place, name = "alexnet.wa_with_c.communication_saved", "AlexNet: WA+C, communication saved"
    yield Comparison(place, name, 100 * saved, SAVED_BY_WA_C, "%")


def _left(of: Benchmark, ratio: float) -> float:
    """Return INC+C's communication as a share of WA's."""
    return (1 - of.saved_communication / 100) * compressed(fixed_share(), ratio)


def speedup(of: Benchmark, ratio: float) -> float:
    """Return the speed-up of INC+C with this compression ratio over WA, for equal iterations (figure 12)."""
    return of.total / _total(of, _left(of, ratio) * of.communicate)


def _upward_share() -> float:
    """Return the share of gradients in an aggregator's communication; the rest are weights."""
    return WORKERS / worker_aggregator(WORKERS, 1, Link(0, 1, 0))


def with_host_codec(of: Benchmark, ratio: float, compress: float, decompress: float) -> float:
    """Return figure 7: WA's training time relative to that without a codec, if hosts compress the gradients.

    ``compress`` and ``decompress`` are bytes of floats a second; the aggregator decompresses one worker's
    gradient after another. The number of packets shrinks with the bytes, since the sockets carry less.
    """
    saved = of.communicate * _upward_share() * (1 - 1 / ratio)
    spent = ITERATIONS * of.size * (1 / compress + WORKERS / decompress)
    return (of.total - saved + spent) / of.total


def _total(of: Benchmark, communicate: float) -> float:
    """Return the seconds of training with the ring: each worker sums a share, and updates its own model."""
    return of.local + of.sum / WORKERS + communicate


def scaling(workers: int, size: float = ALEXNET.size) -> tuple[float, float]:
    """Return figure 15: exchange times of WA and INC, uncompressed, relative to WA's with four workers."""
    one = worker_aggregator(WORKERS, size, aggregator_link())
    return worker_aggregator(workers, size, aggregator_link()) / one, ring(workers, size, ring_link()) / one
