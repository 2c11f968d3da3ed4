"""How long a process group's collectives would take on the hardware (docs/systems/torch-backend.md, "Time")."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.codecs import encode
from fanin.golden.scaled import PLACES
from fanin.report.unit import Unit
from fanin.sim.network import LinkConfig
from fanin.sim.ring.time import RingTime
from fanin.sim.switch.time import SwitchTime
from fanin.torch.options import Collective, Options

RATES = (10.0, 25.0, 100.0)  #: Gb/s of links for which the model says the time, besides the group's own
_HZ = CLOCK_MHZ * 1e6
Float32 = npt.NDArray[np.float32]


@dataclass
class Row:
    """All collectives of one kind and length. ``values`` are those of a rank's tensor.

    ``wire_bytes`` are what a NIC has sent, headers and gaps among it; ``predicted`` the model's seconds by
    Gb/s; ``measured`` those of the RTL at the group's own rate, None where there was none.
    """

    name: str
    values: int
    calls: int = 0
    wire_bytes: float = 0.0
    predicted: dict[float, float] = field(default_factory=dict)
    measured: float | None = None

    def add(self, other: Row) -> None:
        """Count another one's calls."""
        self.calls += other.calls
        self.wire_bytes += other.wire_bytes
        for rate, seconds in other.predicted.items():
            self.predicted[rate] = self.predicted.get(rate, 0.0) + seconds
        if other.measured is not None:
            self.measured = (self.measured or 0.0) + other.measured


@dataclass(frozen=True)
class CommunicationTime:
    """What a process group's collectives would take; ``str`` is a table.

    ``gloo_seconds`` is how long gloo took here for those that it carried, ``other_seconds`` the time since the
    first collective in which none was under way: what the script computed, as far as it did not meanwhile.
    """

    hardware: str
    gbps: float  #: of the group's own links
    rows: tuple[Row, ...]
    gloo_calls: int
    gloo_bytes: int
    gloo_seconds: float
    other_seconds: float

    @property
    def total(self) -> Row:
        """All rows as one."""
        total = Row("total", sum(row.values * row.calls for row in self.rows))
        for row in self.rows:
            total.add(row)
        return total

    @property
    def seconds(self) -> float:
        """All collectives of the NICs, at the group's own rate: measured in RTL, else by the model."""
        total = self.total
        return total.predicted.get(self.gbps, 0.0) if total.measured is None else total.measured

    def __str__(self) -> str:
        total = self.total
        rates = sorted(total.predicted)
        heads = ["collective", "values", "calls", "on the wire", *(f"{rate:g} Gb/s" for rate in rates)]
        heads += [] if total.measured is None else [f"RTL, {self.gbps:g} Gb/s"]
        table = [heads, *(_cells(row, rates) for row in (*self.rows, total))]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  " + "  ".join([cells[0].ljust(widths[0]), *map(str.rjust, cells[1:], widths[1:])])
            for cells in table
        ]
        gloo = f"{self.gloo_calls:,} collectives, {_size(self.gloo_bytes)}, {_time(self.gloo_seconds)} here"
        return "\n".join(
            [
                self.hardware,
                "",
                *lines,
                "",
                f"  by gloo    {gloo}",
                f"  computing  {_time(self.other_seconds)} in which no collective was under way",
            ]
        )


def _cells(row: Row, rates: list[float]) -> list[str]:
    cells = [row.name, f"{row.values:,}", f"{row.calls:,}", _size(row.wire_bytes)]
    cells += [_time(row.predicted[rate]) for rate in rates]
    return cells if row.measured is None else [*cells, _time(row.measured)]


def _time(seconds: float) -> str:
    return Unit.of(seconds)(seconds)


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:,.4g} GB"


def predicted(options: Options, nodes: int, vector: Float32, *, gbps: float) -> tuple[float, float]:
    """Seconds of an all-reduce of ``vector`` and the other nodes', by the model, and bytes that a NIC sends."""
    link = LinkConfig(gbps=gbps)
    if options.collective is Collective.SWITCH:
        program = options.program(nodes)
        times = [SwitchTime(program=program, count=n, link=link) for n in (PLACES, vector.size)]
        return sum(time.total for time in times) * 1e-9, sum(time.wire_bytes for time in times)
    config, size = options.ring, None
    if isinstance(config.codec, Inceptionn):  # which shrinks each vector as its values allow
        size = len(encode(vector, config.codec)) / config.words(vector.size)
    ring = RingTime(config=config, nodes=nodes, count=vector.size, link=link, word_bytes=size)
    return ring.total / _HZ, ring.on_link * ring.rate


class Log:
    """What a group's thread notes of its collectives, and the script's calls."""

    def __init__(self, options: Options, nodes: int):
        self._options, self._nodes = options, nodes
        self._rows: dict[tuple[str, int], Row] = {}
        self._gloo_calls = self._gloo_bytes = 0
        self._gloo_seconds = self._other_seconds = 0.0
        self._lock = threading.Lock()
        self._under_way = 0
        self._idle_since: float | None = None  # None before the first call

    def begin(self) -> None:
        """The script has called a collective."""
        with self._lock:
            if not self._under_way and self._idle_since is not None:
                self._other_seconds += monotonic() - self._idle_since
            self._under_way += 1

    def end(self) -> None:
        """It is carried out."""
        with self._lock:
            self._under_way -= 1
            self._idle_since = monotonic()

    def gloo(self, size: int, seconds: float) -> None:
        """Gloo has carried one of ``size`` bytes out."""
        with self._lock:
            self._gloo_calls += 1
            self._gloo_bytes += size
            self._gloo_seconds += seconds

    def nics(self, name: str, values: int, vector: Float32, measured: float | None) -> None:
        """The NICs have added ``vector`` and the other ranks' up, for a collective of ``values``."""
        row = Row(name, values, calls=1, measured=measured)
        for rate in {*RATES, self._options.gbps}:
            seconds, size = predicted(self._options, self._nodes, vector, gbps=rate)
            row.predicted[rate] = seconds
            if rate == self._options.gbps:
                row.wire_bytes = size
        with self._lock:
            self._rows.setdefault((name, values), Row(name, values)).add(row)

    def report(self) -> CommunicationTime:
        """All of it, up to now."""
        with self._lock:
            rows = []
            for row in self._rows.values():
                rows.append(Row(row.name, row.values))
                rows[-1].add(row)
            return CommunicationTime(
                hardware=f"{self._nodes} {self._options}",
                gbps=self._options.gbps,
                rows=tuple(rows),
                gloo_calls=self._gloo_calls,
                gloo_bytes=self._gloo_bytes,
                gloo_seconds=self._gloo_seconds,
                other_seconds=self._other_seconds,
            )


_logs: list[Log] = []  # of this process' latest group of the whole job


def keep(log: Log) -> None:
    """Let ``time()`` tell this log, also when its group is destroyed."""
    _logs[:] = [log]


def time(group: Any = None) -> CommunicationTime:
    """How long the collectives of a group of ``fanin`` would take on its hardware, as a rank has seen them.

    Without ``group``: of the group that ``init_process_group`` has made last. Raises ValueError where it is of
    another backend.
    """
    log = getattr(group, "log", None) if group is not None else next(iter(_logs), None)
    if not isinstance(log, Log):
        raise ValueError("time() is of a process group of the backend 'fanin', and there is none")
    return log.report()
