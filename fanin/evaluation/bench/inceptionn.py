"""Benchmark of INCEPTIONN on RTL NICs: ring against aggregator, with and without codec (figures 12 and 15).

Hosts run the exchanges over simulated NICs. Nothing is fitted: links have 10 Gb/s, and the host's time per
packet and the NIC's clock are given.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import Inceptionn, Mode
from fanin.evaluation.bench.figure import Figure, outputs, write
from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.models import exchange_cost
from fanin.evaluation.models.exchange_cost import BENCHMARKS, ITERATIONS, WORKERS, Benchmark
from fanin.evaluation.origins.graph import identifier
from fanin.inceptionn.facts import Leg, Topology
from fanin.ring.groups import Scheme
from fanin.sim.codec import tags
from fanin.sim.inceptionn.cosim import ExchangeRun, InceptionnCosim
from fanin.sim.inceptionn.host import HostCosts
from fanin.sim.inceptionn.hosts import Plan

Float32 = npt.NDArray[np.float32]

CODEC = Inceptionn(10, Mode.PUBLISHED)
FIGURE_15_WORKERS = (4, 6, 8)
VALUE_BYTES = 4
SCHEMES = {"WA": Scheme.AGGREGATOR, "INC": Scheme.RING}
BARS = ("WA", "WA+C", "INC", "INC+C")
PAPER = "paper"


@dataclass(frozen=True)
class Setting:
    """Clock of the NICs, and speed of the hosts.

    - ``id``, ``name``: identifier, and name for a reader.
    - ``clock_mhz``: clock of the NICs.
    - ``packet``: seconds that a host takes for a packet.
    """

    id: str
    name: str
    clock_mhz: float
    packet: float

    def costs(self, *, sums: bool) -> HostCosts:
        """Return the costs of hosts. ``sums``: with γ of table II per byte of sums, else free."""
        return HostCosts(packet=self.packet, sum=exchange_cost.aggregator_link().add if sums else 0.0)


SETTINGS = (
    Setting("mhz_250", "NIC at 250 MHz, hosts take no time", 250, 0.0),
    Setting("mhz_100", "NIC at 100 MHz, hosts take no time", 100, 0.0),
    Setting("mhz_250_hosts_1us", "NIC at 250 MHz, hosts take 1 µs a packet", 250, 1e-6),
)
FAST, PUBLISHED, _ = SETTINGS


def measure(args: argparse.Namespace) -> Iterator[Result]:
    """Yield times and traffic; write figures 12 and 15 into ``args.output``. Raises InputError.

    A simulation of 5, 7 and 9 nodes is built, a minute or two each.
    """
    if args.values < 1:
        raise InputError(f"--values must be at least 1, not {args.values}")
    paths = [outputs(f"inceptionn-{name}", args.output) for name in ("figure12", "figure15")]
    bench = _Bench(args.values)
    figures = []
    for setting in SETTINGS:
        figure = Figure("figure 12", setting.name, "", "communication, WA = 1")
        figure.log_x, figure.x_names, figure.over, figure.note = False, list(BARS), PAPER, _NOTE_12
        yield from bench.figure_12(setting, figure)
        figures.append(figure)
    write(figures, paths[0])
    figures = []
    for setting in SETTINGS[:2]:
        figure = Figure("figure 15", setting.name, "workers", "exchange time, WA of 4 = 1")
        figure.log_x, figure.over, figure.note = False, "formula", _NOTE_15
        yield from bench.figure_15(setting, figure)
        figures.append(figure)
    write(figures, paths[1])


_NOTE_12 = "RTL, four workers, table III's shares at 2^-10 (published). Open markers: what the paper states."
_NOTE_15 = "RTL, AlexNet's shares; sums included. Dots: section VIII-D's formula, as fitted to the paper."


class _Bench:
    """Runner of exchanges, which builds each simulation once. ``values``: values of a gradient."""

    def __init__(self, values: int):
        self._values = values
        self._built: dict[tuple[int, float], InceptionnCosim] = {}

    def _run(
        self, name: str, setting: Setting, benchmark: Benchmark, workers: int = WORKERS, *, sums: bool = False
    ) -> ExchangeRun:
        """Run an exchange. ``name``: WA or INC, optionally with +C for compression."""
        scheme, _, compressed = name.partition("+")
        key = workers + 1, setting.clock_mhz
        if key not in self._built:
            self._built[key] = InceptionnCosim(nodes=key[0], clock_mhz=setting.clock_mhz)
        topology = Topology(workers, SCHEMES[scheme])
        plan = Plan(topology, CODEC if compressed else None, costs=setting.costs(sums=sums))
        gradients = tags.gradients(tags.TABLE_III[benchmark.name][0], self._values, workers)
        return self._built[key].exchange(plan, gradients)

    def figure_12(self, setting: Setting, figure: Figure) -> Iterator[Result]:
        """Yield communication of all four benchmarks; without compression, one run serves all."""
        uncompressed = {name: self._run(name, setting, BENCHMARKS[0]) for name in ("WA", "INC")}
        speedups = {}
        for benchmark in BENCHMARKS:
            runs = uncompressed | {name: self._run(name, setting, benchmark) for name in ("WA+C", "INC+C")}
            seconds = {name: runs[name].seconds for name in BARS}
            for x, name in enumerate(BARS):
                figure.add(f"{benchmark.name}, measured", x, seconds[name] / seconds["WA"])
            for x, remaining in _published_communication(benchmark).items():
                figure.add(f"{benchmark.name}, {PAPER}", x, remaining)
            yield from self._times(setting, benchmark, seconds)
            if benchmark is BENCHMARKS[0]:
                yield from _traffic(setting, runs)
            speedups[benchmark.name] = _training_seconds(
                benchmark, self._scaled(benchmark, seconds["WA"]), benchmark.sum
            ) / _training_seconds(benchmark, self._scaled(benchmark, seconds["INC+C"]), benchmark.sum / WORKERS)
        for end, select, paper in (("least", min, 2.2), ("most", max, 3.1)):
            name, note = f"{setting.name}: INC+C, faster, {end}", f"the paper: {paper}"
            figure_id = identifier("inceptionn.rtl", setting.id, "inc+c.faster", end)
            yield Result(name, select(speedups.values()), "×", note=note, id=figure_id)

    def _scaled(self, benchmark: Benchmark, seconds: float) -> float:
        """Scale a time to table II's iterations and the benchmark's size, in proportion to bytes."""
        return ITERATIONS * seconds * benchmark.size / (VALUE_BYTES * self._values)

    def _times(self, setting: Setting, benchmark: Benchmark, seconds: Mapping[str, float]) -> Iterator[Result]:
        name = f"{setting.name}: {benchmark.name}"
        id_prefix = identifier("inceptionn.rtl", setting.id, benchmark.name)
        note = f"the paper: {number(benchmark.communicate)}"
        communicate_seconds = self._scaled(benchmark, seconds["WA"])
        yield Result(
            f"{name}: WA, communicate", communicate_seconds, "s", note=note, id=f"{id_prefix}.wa.communicate_s"
        )
        paper = _published_communication(benchmark)
        for x, bar in enumerate(BARS[1:], start=1):
            note = f"the paper: {number(100 * (1 - paper[x]))}" if x in paper else ""
            saving = 100 * (1 - seconds[bar] / seconds["WA"])
            figure_id = identifier(id_prefix, bar, "communication saved")
            yield Result(f"{name}: {bar}, communication saved", saving, "%", note=note, id=figure_id)
        remaining = seconds["INC+C"] / seconds["INC"]
        text, figure_id = f"{name}: INC, saved by the codec", f"{id_prefix}.inc.saved_by_codec"
        yield Result(text, 100 * (1 - remaining), "%", note="the paper: 53.9", id=figure_id)
        fixed = 100 * (remaining - 1 / benchmark.ratio) / (1 - 1 / benchmark.ratio)
        note = (
            f"saved {number(100 * (1 - remaining))} %, the paper: 53.9; the model of VIII-D is fitted with 39 %"
        )
        yield Result(f"{name}: INC, share that compression leaves", fixed, "%", note=note)

    def figure_15(self, setting: Setting, figure: Figure) -> Iterator[Result]:
        """Yield exchange times over workers, including sums."""
        benchmark, base_seconds = exchange_cost.ALEXNET, 0.0
        for workers in FIGURE_15_WORKERS:
            for name in BARS:
                run = self._run(name, setting, benchmark, workers, sums=True)
                base_seconds = base_seconds or run.seconds
                result = figure.add(f"{name}, measured", workers, run.seconds / base_seconds)
                text, point = f"{setting.name}, {result.name}", f"workers {workers}"
                figure_id = identifier("inceptionn.rtl.figure_15", setting.id, name, point)
                yield replace(result, name=text, id=figure_id)
            for name, value in zip(("WA", "INC"), exchange_cost.scaling(workers), strict=True):
                figure.add(f"{name}, formula", workers, value)


def _published_communication(benchmark: Benchmark) -> dict[int, float]:
    """Return communication relative to WA's, by bar, as far as the paper states it."""
    communication_by_bar = {BARS.index("WA"): 1.0, BARS.index("INC"): 1 - benchmark.saved_communication / 100}
    if benchmark is exchange_cost.ALEXNET:
        communication_by_bar[BARS.index("WA+C")] = 1 - exchange_cost.SAVED_BY_WA_C / 100
    if benchmark is exchange_cost.RESNET:
        communication_by_bar[BARS.index("INC+C")] = communication_by_bar[BARS.index("INC")] * (
            1 - exchange_cost.SAVED_BY_COMPRESSION / 100
        )
    return communication_by_bar


def _training_seconds(benchmark: Benchmark, communicate: float, summing: float) -> float:
    """Return the time of training in s, without the update, as in exchange_cost."""
    return benchmark.local + summing + communicate


def _traffic(setting: Setting, runs: Mapping[str, ExchangeRun]) -> Iterator[Result]:
    """Yield packets and headers of each leg."""
    for name in BARS:
        legs: Mapping[Leg, object] = runs[name].legs
        for leg in legs:
            traffic = runs[name].legs[leg]
            text = f"{setting.name}: AlexNet: {name}, {leg.label}"
            note = f"{number(traffic.acknowledgements)} acknowledgements, {number(traffic.raw)} raw"
            yield Result(f"{text}: packets", traffic.packets, "packets", note=note)
            note = f"{number(traffic.payload)} of {number(traffic.wire)} bytes are payload"
            yield Result(f"{text}: headers, of the wire", 100 * traffic.header_share, "%", note=note)
