"""INCEPTIONN as published, on RTL NICs: ring against aggregator, with and without codec; figures 12 and 15.

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
FIGURE_15 = (4, 6, 8)
VALUE_BYTES = 4
SCHEMES = {"WA": Scheme.AGGREGATOR, "INC": Scheme.RING}
BARS = ("WA", "WA+C", "INC", "INC+C")
PAPER = "paper"


@dataclass(frozen=True)
class Setting:
    """NICs at a clock, and hosts that take so many seconds for a packet."""

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
    """Runner of exchanges. Each simulation is built once."""

    def __init__(self, values: int):
        self._values = values
        self._built: dict[tuple[int, float], InceptionnCosim] = {}

    def _run(
        self, name: str, setting: Setting, of: Benchmark, workers: int = WORKERS, *, sums: bool = False
    ) -> ExchangeRun:
        """Run an exchange. ``name``: WA or INC, optionally with +C for compression."""
        scheme, _, coded = name.partition("+")
        key = workers + 1, setting.clock_mhz
        if key not in self._built:
            self._built[key] = InceptionnCosim(nodes=key[0], clock_mhz=setting.clock_mhz)
        topology = Topology(workers, SCHEMES[scheme])
        plan = Plan(topology, CODEC if coded else None, costs=setting.costs(sums=sums))
        gradients = tags.gradients(tags.TABLE_III[of.name][0], self._values, workers)
        return self._built[key].exchange(plan, gradients)

    def figure_12(self, setting: Setting, figure: Figure) -> Iterator[Result]:
        """Yield communication of all four benchmarks; without compression, one run serves all."""
        plain = {name: self._run(name, setting, BENCHMARKS[0]) for name in ("WA", "INC")}
        faster = {}
        for of in BENCHMARKS:
            runs = plain | {name: self._run(name, setting, of) for name in ("WA+C", "INC+C")}
            seconds = {name: runs[name].seconds for name in BARS}
            for x, name in enumerate(BARS):
                figure.add(f"{of.name}, measured", x, seconds[name] / seconds["WA"])
            for x, left in _published(of).items():
                figure.add(f"{of.name}, {PAPER}", x, left)
            yield from self._times(setting, of, seconds)
            if of is BENCHMARKS[0]:
                yield from _traffic(setting, runs)
            faster[of.name] = _total(of, self._scaled(of, seconds["WA"]), of.sum) / _total(
                of, self._scaled(of, seconds["INC+C"]), of.sum / WORKERS
            )
        for end, pick, paper in (("least", min, 2.2), ("most", max, 3.1)):
            name, note = f"{setting.name}: INC+C, faster, {end}", f"the paper: {paper}"
            short = identifier("inceptionn.rtl", setting.id, "inc+c.faster", end)
            yield Result(name, pick(faster.values()), "×", note=note, id=short)

    def _scaled(self, of: Benchmark, seconds: float) -> float:
        """Scale a time to table II's iterations and the benchmark's size, in proportion to bytes."""
        return ITERATIONS * seconds * of.size / (VALUE_BYTES * self._values)

    def _times(self, setting: Setting, of: Benchmark, seconds: Mapping[str, float]) -> Iterator[Result]:
        name, place = f"{setting.name}: {of.name}", identifier("inceptionn.rtl", setting.id, of.name)
        note, took = f"the paper: {number(of.communicate)}", self._scaled(of, seconds["WA"])
        yield Result(f"{name}: WA, communicate", took, "s", note=note, id=f"{place}.wa.communicate_s")
        paper = _published(of)
        for x, bar in enumerate(BARS[1:], start=1):
            note = f"the paper: {number(100 * (1 - paper[x]))}" if x in paper else ""
            saved = 100 * (1 - seconds[bar] / seconds["WA"])
            short = identifier(place, bar, "communication saved")
            yield Result(f"{name}: {bar}, communication saved", saved, "%", note=note, id=short)
        left = seconds["INC+C"] / seconds["INC"]
        text, short = f"{name}: INC, saved by the codec", f"{place}.inc.saved_by_codec"
        yield Result(text, 100 * (1 - left), "%", note="the paper: 53.9", id=short)
        fixed = 100 * (left - 1 / of.ratio) / (1 - 1 / of.ratio)
        note = f"saved {number(100 * (1 - left))} %, the paper: 53.9; the model of VIII-D is fitted with 39 %"
        yield Result(f"{name}: INC, share that compression leaves", fixed, "%", note=note)

    def figure_15(self, setting: Setting, figure: Figure) -> Iterator[Result]:
        """Yield exchange times over workers, including sums."""
        of, one = exchange_cost.ALEXNET, 0.0
        for workers in FIGURE_15:
            for name in BARS:
                run = self._run(name, setting, of, workers, sums=True)
                one = one or run.seconds
                result = figure.add(f"{name}, measured", workers, run.seconds / one)
                text, point = f"{setting.name}, {result.name}", f"workers {workers}"
                short = identifier("inceptionn.rtl.figure_15", setting.id, name, point)
                yield replace(result, name=text, id=short)
            for name, value in zip(("WA", "INC"), exchange_cost.scaling(workers), strict=True):
                figure.add(f"{name}, formula", workers, value)


def _published(of: Benchmark) -> dict[int, float]:
    """Return communication relative to WA's, by bar, as far as the paper states it."""
    found = {BARS.index("WA"): 1.0, BARS.index("INC"): 1 - of.saved_communication / 100}
    if of is exchange_cost.ALEXNET:
        found[BARS.index("WA+C")] = 1 - exchange_cost.SAVED_BY_WA_C / 100
    if of is exchange_cost.RESNET:
        found[BARS.index("INC+C")] = found[BARS.index("INC")] * (1 - exchange_cost.SAVED_BY_COMPRESSION / 100)
    return found


def _total(of: Benchmark, communicate: float, summing: float) -> float:
    """Return the time of training in s, without the update, as in exchange_cost."""
    return of.local + summing + communicate


def _traffic(setting: Setting, runs: Mapping[str, ExchangeRun]) -> Iterator[Result]:
    """Yield packets and headers of each leg."""
    for name in BARS:
        legs: Mapping[Leg, object] = runs[name].legs
        for leg in legs:
            traffic = runs[name].legs[leg]
            which = f"{setting.name}: AlexNet: {name}, {leg.label}"
            note = f"{number(traffic.acknowledgements)} acknowledgements, {number(traffic.raw)} raw"
            yield Result(f"{which}: packets", traffic.packets, "packets", note=note)
            note = f"{number(traffic.payload)} of {number(traffic.wire)} bytes are payload"
            yield Result(f"{which}: headers, of the wire", 100 * traffic.header_share, "%", note=note)
