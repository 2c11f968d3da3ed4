"""Process that simulates boards: Verilated tops, each with its own clocks and PHYs.

A board has clocks at its pins, with given period and phase. The clocks of its PLLs follow from these and from
the netlist. Edges are at whole femtoseconds.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

import jinja2

from fanin.base.errors import ToolFailed
from fanin.sim.boards.model import BoardModel
from fanin.sim.cosim.program_build import VerilogModel, build_program
from fanin.wire.ethernet import FCS_BYTES, GAP_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

_FS = 1000  # femtoseconds per picosecond
_END_SECONDS = 60  # for the process to finish its last command and its traces
PREAMBLE = b"\x55" * (PREAMBLE_BYTES - 1) + b"\xd5"
GIGABIT_PS, SLOW_PS = Fraction(8000), {100: Fraction(40_000), 10: Fraction(400_000)}
MAX_RESET_PS = 100_000_000_000
STARTED_PS = 25_000_000  #: time within which PLLs have locked and resets have ended
_SOURCES = ("model.h", "phy.h", "phy.cpp", "harness.cpp")


@dataclass(frozen=True)
class Clock:
    """A clock at a pin: its period and first rising edge, in ps; the period may be fractional."""

    period_ps: Fraction
    phase_ps: int = 0

    @classmethod
    def of_mhz(cls, mhz: float, *, ppm: float = 0, phase_ps: int = 0) -> Clock:
        """Return the clock of a frequency, with an error of ``ppm`` millionths."""
        frequency = Fraction(mhz) * (1 + Fraction(ppm) / 1_000_000)
        return cls(Fraction(1_000_000) / frequency, phase_ps)


@dataclass(frozen=True)
class PhyConfig:
    """A PHY at a board's RGMII, by the names of the ports.

    - ``rx_delay_ps``: delay from data to its clock that the PHY adds.
    - ``tx_delay_ps``: delay that the PHY adds to the board's clock. Both are 2,000 if the PHY delays, 0 if the
      board does.
    - ``reset``: pin by which the board resets the PHY; while it is low, the PHY loses all frames. Empty: no
      reset.
    - ``speed``: Mb/s.
    - ``ppm``, ``phase_ps``: error and phase of the PHY's receive clock.
    """

    rx_clk: str
    rx_ctl: str
    rx_data: str
    tx_clk: str
    tx_ctl: str
    tx_data: str
    reset: str = ""
    speed: int = 1000
    ppm: float = 0
    phase_ps: int = 0
    rx_delay_ps: int = 2000
    tx_delay_ps: int = 2000

    @property
    def clock(self) -> Clock:
        """Clock of the PHY's receive side."""
        period = GIGABIT_PS if self.speed == 1000 else SLOW_PS[self.speed]
        return Clock(period / (1 + Fraction(self.ppm) / 1_000_000), self.phase_ps)


@dataclass(frozen=True)
class BoardConfig:
    """Settings of a simulated board.

    - ``clocks``: clocks at its pins, by port.
    - ``phys``: its PHYs, in order.
    - ``pins``: constant values of other inputs, by port.
    - ``lock_ps``: time at which its PLLs lock.
    """

    model: BoardModel
    clocks: Mapping[str, Clock]
    phys: Sequence[PhyConfig] = ()
    pins: Mapping[str, int] = field(default_factory=dict)
    lock_ps: int = 1_000_000

    def all_clocks(self) -> dict[str, Clock]:
        """Return the clocks of pins and PLLs. Raises ValueError if one at a pin is missing."""
        clocks = dict(self.clocks)
        waiting = list(self.model.pins.clocks)
        while waiting:
            ready = [pll for pll in waiting if pll.source in clocks]
            if not ready:
                raise ValueError(f"clocks must have {waiting[0].source!r}, the reference of {waiting[0].port}")
            for pll in ready:
                source = clocks[pll.source]
                delay = int(pll.delay * source.period_ps)
                clocks[pll.port] = Clock(pll.ratio * source.period_ps, source.phase_ps + delay)
            waiting = [pll for pll in waiting if pll not in ready]
        return clocks


@dataclass(frozen=True)
class Transmission:
    """A frame sent by a board.

    - ``time``: end of its last byte, in ps.
    - ``gap``: idle bytes before it.
    - ``fault``: ``transmit error``, ``preamble``, ``short`` or ``FCS``; empty for an intact frame.
    - ``data``: the frame without preamble and FCS; with a fault, all bytes on the wire.
    """

    board: int
    phy: int
    time: int
    gap: int
    data: bytes
    fault: str


def on_the_wire(frame: bytes, *, preamble: bytes = PREAMBLE, fcs: bytes | None = None) -> bytes:
    """Return a frame with preamble and FCS, computed unless ``fcs`` is given. The frame is not padded."""
    checksum = zlib.crc32(frame).to_bytes(FCS_BYTES, "little")
    return preamble + frame + (checksum if fcs is None else fcs)


class Boards:
    """Boards that run together in one process; a context manager that ends the process.

    Times are in ps. ``send`` and ``set_pin`` schedule events at or after ``time``; ``run`` advances the time.
    Boards are not connected to one another: ``run`` returns their frames, and the caller forwards these.
    """

    def __init__(self, configs: Sequence[BoardConfig], *, optimise: str = "-O2", quiet: bool = True):
        self.configs = list(configs)
        self.time = 0  #: time up to which the boards have run
        self.busy = False  #: whether a frame was being received or sent at that time
        models = list(dict.fromkeys((c.model.top, c.model.verilog) for c in configs))
        program = board_program([self._model(*model) for model in models], optimise=optimise, quiet=quiet)
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._replies = self._process.stdin, self._process.stdout
        self._ports = [[*c.model.inputs, *c.model.outputs] for c in configs]
        for number, config in enumerate(configs):
            self._set_up(number, config, models.index((config.model.top, config.model.verilog)))

    def _model(self, top: str, verilog: str) -> BoardModel:
        return next(c.model for c in self.configs if (c.model.top, c.model.verilog) == (top, verilog))

    def _set_up(self, number: int, config: BoardConfig, kind: int) -> None:
        """Make a board of model ``kind`` in the process: its clocks, PHYs, links, locks and constant pins."""
        self._command(f"board {kind}")
        delays = config.model.pins.delays
        phy_clocks = {phy.rx_clk for phy in config.phys}
        for port, clock in config.all_clocks().items():
            if port not in phy_clocks:
                self._command(f"clock {self._port(number, port)} {_edges(clock)}")
        for phy in config.phys:
            names = (phy.rx_clk, phy.rx_ctl, phy.rx_data, phy.tx_clk, phy.tx_ctl, phy.tx_data)
            ports = " ".join(str(self._port(number, name)) for name in names)
            reset = self._port(number, phy.reset) if phy.reset else -1
            clock_delay = phy.rx_delay_ps + delays.get(phy.rx_clk, 0)
            data_delay = _common_delay(delays, phy.rx_ctl, phy.rx_data)
            sample = (
                phy.tx_delay_ps + delays.get(phy.tx_clk, 0) - _common_delay(delays, phy.tx_ctl, phy.tx_data)
            )
            if sample < 0:
                raise ValueError(f"{phy.tx_data} must not come later than its clock is sampled")
            times = " ".join(str(delay * _FS) for delay in (clock_delay, data_delay, sample))
            self._command(f"phy {ports} {reset} {_edges(phy.clock)} {times}")
        for index, phy in enumerate(config.phys):
            self.set_link(number, phy=index, speed=phy.speed, up=True)
        for port in config.model.pins.locks:
            self.set_pin(number, port, 1, time=config.lock_ps)
        for port, value in config.pins.items():
            self.set_pin(number, port, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the boards' process, which completes traces. Raises ToolFailed if it does not end."""
        with contextlib.suppress(BrokenPipeError):  # a failed process reads no more
            self._commands.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise ToolFailed(f"the boards' simulation did not end in {_END_SECONDS:g} s") from None
        finally:
            self._replies.close()

    def set_link(self, board: int, *, phy: int = 0, speed: int = 1000, up: bool = True) -> None:
        """Set the link status that the PHY reports between frames. The clock stays as configured."""
        self._command(f"link {board} {phy} {speed} {int(up)}")

    def set_pin(self, board: int, port: str, value: int, *, time: int | None = None) -> None:
        """Set an input, at ``time`` or now, after clocks that rise at that time."""
        self._command(f"pin {board} {self._port(board, port)} {value} {self._start_time(time) * _FS}")

    def read_pin(self, board: int, port: str) -> int:
        """Return a port's value at ``time``."""
        self._command(f"read {board} {self._port(board, port)}")
        return int(self._read_reply())

    def lost(self, board: int, *, phy: int = 0) -> tuple[int, int]:
        """Return the numbers of frames to and from a board that were lost because its PHY was in reset."""
        self._command(f"lost {board} {phy}")
        to_board, from_board = map(int, self._read_reply().split())
        return to_board, from_board

    def power_up(self) -> None:
        """Run until no board holds its PHY in reset. Raises ToolFailed after ``MAX_RESET_PS``."""
        resets = [(n, phy.reset) for n, config in enumerate(self.configs) for phy in config.phys if phy.reset]
        end = self.time + MAX_RESET_PS
        self.run(self.time + STARTED_PS)
        while held_boards := [board for board, reset in resets if not self.read_pin(board, reset)]:
            if self.time >= end:
                raise ToolFailed(f"board {held_boards[0]} holds its PHY in reset for {MAX_RESET_PS / 1e9:g} ms")
            self.run(self.time + STARTED_PS)

    def send(
        self, board: int, frame: bytes, *, time: int | None = None, phy: int = 0, bad_fcs: bool = False
    ) -> None:
        """Send a frame to a board, padded to the least length; its preamble begins at ``time`` or later."""
        wire = bytearray(on_the_wire(frame.ljust(MIN_FRAME_BYTES, b"\0")))
        wire[-1] ^= bad_fcs
        self.send_wire(board, bytes(wire), time=time, phy=phy)

    def send_wire(
        self,
        board: int,
        data: bytes,
        *,
        time: int | None = None,
        phy: int = 0,
        gap: int = GAP_BYTES,
        error_at: int | None = None,
    ) -> None:
        """Send ``data`` unchanged, at least ``gap`` idle bytes after the previous transmission.

        ``error_at``: index of a byte with a receive error. Transmissions with an earlier ``time`` come first.
        """
        start, error = self._start_time(time) * _FS, -1 if error_at is None else error_at
        self._command(f"send {board} {phy} {start} {gap} {error} {len(data)}", data)

    def trace(self, board: int, path: Path, ports: Sequence[str] | None = None) -> None:
        """Write each change of ``ports``, by default all outputs, from now on.

        A change is the time in fs and the ports in order, 8 bytes each; all ports are 0 before.
        """
        names = self.configs[board].model.outputs if ports is None else ports
        numbers = " ".join(str(self._port(board, name)) for name in names)
        self._command(f"trace {board} {path} {numbers}")

    def run(self, end: int) -> list[Transmission]:
        """Run all boards up to, not including, a time; return the frames sent by then, in order of time."""
        self._command(f"run {end * _FS}")
        sent = []
        while (words := self._read_reply().split())[0] == "frame":
            board, phy, frame_end, gap, error, size = map(int, words[1:])
            sent.append(_transmission(board, phy, frame_end // _FS, gap, bool(error), self._replies.read(size)))
        self.busy, self.time = words[1] != "0", end
        return sorted(sent, key=lambda transmission: (transmission.time, transmission.board))

    def _start_time(self, time: int | None) -> int:
        if time is not None and time < self.time:
            raise ValueError(f"time must be at least {self.time}, up to which the boards have run, not {time}")
        return self.time if time is None else time

    def _port(self, board: int, name: str) -> int:
        if name not in self._ports[board]:
            raise ValueError(f"port must be one of {', '.join(self._ports[board])}, not {name!r}")
        return self._ports[board].index(name)

    def _command(self, text: str, data: bytes = b"") -> None:
        try:
            self._commands.write(text.encode() + b"\n" + data)
            self._commands.flush()
        except OSError as error:
            raise ToolFailed(f"the boards' simulation has ended ({error.strerror})") from error

    def _read_reply(self) -> str:
        line = self._replies.readline()
        if not line:
            raise ToolFailed("the boards' simulation has ended")
        return line.decode()


def board_program(models: Sequence[BoardModel], *, optimise: str = "-O2", quiet: bool = True) -> Path:
    """Return the executable that runs boards of these models; it is built once and kept."""
    place = files("fanin.sim.boards")
    sources = {name: (place / name).read_text() for name in _SOURCES}
    prefixes = [f"VBoard{number}" for number in range(len(models))]
    template = jinja2.Template((place / "models.cpp.j2").read_text(), undefined=jinja2.StrictUndefined)
    sources["models.cpp"] = template.render(
        models=[
            {"prefix": prefix, "inputs": list(model.inputs), "outputs": list(model.outputs)}
            for prefix, model in zip(prefixes, models, strict=True)
        ]
    )
    verilated = [VerilogModel(p, m.top, m.verilog) for p, m in zip(prefixes, models, strict=True)]
    return build_program(verilated, sources, optimise=optimise, quiet=quiet)


def _edges(clock: Clock) -> str:
    """Return a clock as the process reads it: numerator and denominator of its period, and its phase, in fs."""
    period = clock.period_ps * _FS
    limit = Fraction(period).limit_denominator(1_000_000)
    return f"{limit.numerator} {limit.denominator} {math.floor(clock.phase_ps * _FS)}"


def _common_delay(delays: Mapping[str, int], first: str, second: str) -> int:
    """Return the common delay of two ports. Raises ValueError if they differ."""
    if delays.get(first, 0) != delays.get(second, 0):
        raise ValueError(f"{first} and {second} must be delayed alike")
    return delays.get(first, 0)


def _transmission(board: int, phy: int, time: int, gap: int, error: bool, wire: bytes) -> Transmission:
    start = wire.find(b"\xd5")
    body = wire[start + 1 :]
    frame, fcs = body[:-FCS_BYTES], body[-FCS_BYTES:]
    if error:
        fault = "transmit error"
    elif start != PREAMBLE_BYTES - 1 or wire[:start].strip(b"\x55"):
        fault = "preamble"
    elif len(body) < MIN_FRAME_BYTES + FCS_BYTES:
        fault = "short"
    else:
        fault = "" if zlib.crc32(frame).to_bytes(FCS_BYTES, "little") == fcs else "FCS"
    return Transmission(board, phy, time, gap, wire if fault else frame, fault)
