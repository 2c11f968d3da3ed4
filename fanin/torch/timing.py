"""Time of a process group's collectives on the hardware (docs/systems/torch-backend.md, "Time")."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.limits import CLOCK_MHZ
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.codecs import encode
from fanin.golden.scaled import PLACES
from fanin.link import LinkConfig
from fanin.report.unit import Unit
from fanin.sim.ring.time import RingTime
from fanin.sim.switch.time import SwitchTime
from fanin.torch.halves import HalfFormat
from fanin.torch.options import Collective, Options

RATES = (10.0, 25.0, 100.0)  #: link rates in Gb/s of the prediction, in addition to the group's own
_HZ = CLOCK_MHZ * 1e6
Float32 = npt.NDArray[np.float32]


@dataclass
class Row:
    """All collectives of one kind and length.

    - ``values``: values of a rank's tensor.
    - ``calls``: number of collectives.
    - ``wire_bytes``: bytes that a NIC has sent, with headers and gaps.
    - ``predicted``: the model's seconds by Gb/s.
    - ``measured``: seconds of the RTL at the group's own rate; None without RTL.
    """

    name: str
    values: int
    calls: int = 0
    wire_bytes: float = 0.0
    predicted: dict[float, float] = field(default_factory=dict)
    measured: float | None = None

    def add(self, other: Row) -> None:
        """Add another row's calls."""
        self.calls += other.calls
        self.wire_bytes += other.wire_bytes
        for rate, seconds in other.predicted.items():
            self.predicted[rate] = self.predicted.get(rate, 0.0) + seconds
        if other.measured is not None:
            self.measured = (self.measured or 0.0) + other.measured


@dataclass(frozen=True)
class CommunicationTime:
    """Time that a process group's collectives would take on the hardware; ``str`` is a table.

    - ``hardware``: description of nodes and links.
    - ``gbps``: rate of the group's own links.
    - ``rows``: collectives of the NICs.
    - ``gloo_calls``, ``gloo_bytes``, ``gloo_seconds``: collectives that gloo carried, and their time on this
      machine.
    - ``other_seconds``: time since the first collective without any in flight: computing that does not overlap.
    """

    hardware: str
    gbps: float
    rows: tuple[Row, ...]
    gloo_calls: int
    gloo_bytes: int
    gloo_seconds: float
    other_seconds: float

    @property
    def total(self) -> Row:
        """All rows added up."""
        total = Row("total", sum(row.values * row.calls for row in self.rows))
        for row in self.rows:
            total.add(row)
        return total

    @property
    def seconds(self) -> float:
        """Time of all the NICs' collectives at the group's own rate: measured in RTL, or else predicted."""
        total = self.total
        return total.predicted.get(self.gbps, 0.0) if total.measured is None else total.measured

    def __str__(self) -> str:
        total = self.total
        rates = sorted(total.predicted)
        columns = ["collective", "values", "calls", "on the wire", *(f"{rate:g} Gb/s" for rate in rates)]
        columns += [] if total.measured is None else [f"RTL, {self.gbps:g} Gb/s"]
        table = [columns, *(_cells(row, rates) for row in (*self.rows, total))]
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


def predicted(
    options: Options, nodes: int, vector: Float32, *, gbps: float, tensor: HalfFormat | None = None
) -> tuple[float, float]:
    """Return predicted seconds of an all-reduce of ``vector``, and bytes that a NIC sends.

    ``tensor``: format of the values in memory; None: binary32.
    """
    link = LinkConfig(gbps=gbps)
    if options.collective is Collective.SWITCH:
        program = options.program(nodes)
        times = [SwitchTime(program=program, count=n, link=link) for n in (PLACES, vector.size)]
        return sum(time.total for time in times) * 1e-9, sum(time.wire_bytes for time in times)
    config, size = replace(options.ring, tensor=tensor), None
    if isinstance(config.codec, Inceptionn):  # its compression depends on the values
        size = len(encode(vector, config.codec)) / config.words(vector.size)
    ring = RingTime(config=config, nodes=nodes, count=vector.size, link=link, word_bytes=size)
    return ring.total / _HZ, ring.on_link * ring.rate


class Log:
    """Record of a group's collectives and of the script's calls; may be used by several threads."""

    def __init__(self, options: Options, nodes: int):
        self._options, self._nodes = options, nodes
        self._rows: dict[tuple[str, int], Row] = {}
        self._gloo_calls = self._gloo_bytes = 0
        self._gloo_seconds = self._other_seconds = 0.0
        self._lock = threading.Lock()
        self._under_way = 0
        self._idle_since: float | None = None  # None before the first call

    def begin(self) -> None:
        """Note that the script has called a collective."""
        with self._lock:
            if not self._under_way and self._idle_since is not None:
                self._other_seconds += monotonic() - self._idle_since
            self._under_way += 1

    def end(self) -> None:
        """Note that a collective has finished."""
        with self._lock:
            self._under_way -= 1
            self._idle_since = monotonic()

    def add_gloo(self, size: int, seconds: float) -> None:
        """Note that gloo has carried a collective of ``size`` bytes."""
        with self._lock:
            self._gloo_calls += 1
            self._gloo_bytes += size
            self._gloo_seconds += seconds

    def add_nics(
        self,
        name: str,
        values: int,
        vector: Float32,
        measured: float | None,
        *,
        tensor: HalfFormat | None = None,
    ) -> None:
        """Note that the NICs have added ``vector`` and the other ranks' vectors for a collective ``name``.

        - ``values``: values of a rank's tensor. ``vector`` has more if each value takes several.
        - ``measured``: seconds in RTL; None without RTL.
        - ``tensor``: format of the values in memory; None: binary32.
        """
        row = Row(name, values, calls=1, measured=measured)
        for rate in {*RATES, self._options.gbps}:
            seconds, size = predicted(self._options, self._nodes, vector, gbps=rate, tensor=tensor)
            row.predicted[rate] = seconds
            if rate == self._options.gbps:
                row.wire_bytes = size
        with self._lock:
            self._rows.setdefault((name, values), Row(name, values)).add(row)

    def report(self) -> CommunicationTime:
        """Return the times so far."""
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


_logs: list[Log] = []  # log of this process's latest group of the whole job


def keep_log(log: Log) -> None:
    """Make ``log`` the log of ``time()``, even after its group is destroyed."""
    _logs[:] = [log]


def time(group: Any = None) -> CommunicationTime:
    """Return the time that a ``fanin`` group's collectives would take on its hardware, as this rank recorded
    them.

    Without ``group``: of the last group that ``init_process_group`` made. Raises ValueError for a group of
    another backend.
    """
    log = getattr(group, "log", None) if group is not None else next(iter(_logs), None)
    if not isinstance(log, Log):
        raise ValueError("time() needs a process group of the backend 'fanin'")
    return log.report()
