"""Bench of layers' components in Verilator: jobs, stalls, and the cycle of each transfer of a stream.

layer_bench.cpp drives the model; no Python runs per cycle. All components of a bench are in one program, so
that many shapes need one build.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from amaranth.lib import data, wiring

from fanin.base.errors import CheckFailed
from fanin.hdl.emission import kept_verilog
from fanin.hdl.emit import FlatPort, flat_ports, snake_case
from fanin.hdl.layers.interface import LayerControl, Mode
from fanin.sim.cosim.arrays import Arith, arrays_source, with_arrays
from fanin.sim.cosim.program_build import VerilogModel, build_program

UInt32 = npt.NDArray[np.uint32]
Words = npt.ArrayLike  # of 32 bits

_WORD_BITS = 32
_STREAM_PARTS = ("payload", "valid", "ready")
_ODDS_UNITS = 65536
_NO_STREAM = 2**32 - 1
_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Job:
    """Job of a component: control, input words, and the number of output words.

    - ``eta``, ``last_eta``, ``momentum``: rounded to binary32.
    - ``feeds``: words by input stream.
    - ``expect``: number of words by output stream.

    Each transfer has ⌈bits of the payload / 32⌉ words. For a component without ``control``, only the streams
    are used.
    """

    mode: Mode = Mode.TRAIN  # type: ignore[assignment]  # an Amaranth enum, unknown to mypy
    frames: int = 0
    batch: int = 0
    eta: float = 0.0
    last_eta: float = 0.0
    momentum: float = 0.0
    feeds: Mapping[str, Words] = field(default_factory=dict)
    expect: Mapping[str, int] = field(default_factory=dict)

    def control(self, *, start: int) -> int:
        """Return the bits of a :class:`LayerControl`."""
        rates = {name: _binary32(getattr(self, name)) for name in ("eta", "last_eta", "momentum")}
        fields = {"mode": self.mode, "start": start, "frames": self.frames, "batch": self.batch, **rates}
        return int(LayerControl.const(fields).as_bits())


def _binary32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@dataclass(frozen=True)
class JobResult:
    """Result of a job. Cycles count from the cycle of ``start``. Streams of loops are included."""

    words: dict[str, UInt32]  #: words that left each output, by stream
    cycles_of: dict[str, UInt32]  #: cycle of each transfer, by stream
    cycles: int  #: cycles until the last transfer, and until ``done`` if the component has it


@dataclass(frozen=True)
class _Stream:
    name: str
    input: bool
    bits: int  #: of the payload

    @property
    def words(self) -> int:
        """Number of 32-bit words of a transfer."""
        return _words(self.bits)


def _words(bits: int) -> int:
    return -(-bits // _WORD_BITS)


class _Ports:
    """Ports of a component, sorted into streams, control, ``done`` and registers."""

    def __init__(self, component: wiring.Component):
        ports = {port.name: port for port in flat_ports(component)}
        self.streams = {stream.name: stream for stream in _streams(ports)}
        parts = {f"{name}_{part}" for name in self.streams for part in _STREAM_PARTS}
        plain = {name: port for name, port in ports.items() if name not in parts}
        control = plain.pop("control", None)
        self.control_bits = len(control.value) if control else 0
        if self.control_bits not in (0, data.Layout.cast(LayerControl).size):
            raise ValueError(f"{type(component).__name__}: control must be a LayerControl")
        self.done = "done" in plain
        self.registers = {name: len(port.value) for name, port in plain.items() if not port.output}


def _streams(ports: Mapping[str, FlatPort]) -> Iterator[_Stream]:
    for name in dict.fromkeys(name.rpartition("_")[0] for name in ports if name.endswith(("_valid", "_ready"))):
        payload, valid, ready = (ports.get(f"{name}_{part}") for part in _STREAM_PARTS)
        if valid is None or ready is None:
            raise ValueError(f"{name} must be a stream with valid and ready")
        yield _Stream(name, not valid.output, len(payload.value) if payload else 0)


class LayerBench:
    """Built simulator of ``components``, by name; each ``run`` is a new process.

    Flat ports ``x_valid``, ``x_ready`` and ``x_payload`` form stream ``x``. ``control`` is a
    :class:`LayerControl`. A job ends with ``done``. Other inputs are registers.

    ``arith``: simulation of arrays of binary32 operators, a value of
    :class:`~fanin.sim.cosim.arrays.Arith`.

    Raises ValueError for other streams and controls, InputError for a missing tool, ToolFailed if the build
    fails, and the errors of ``emit_verilog``.
    """

    def __init__(self, components: Mapping[str, wiring.Component], *, arith: str = Arith.C, quiet: bool = True):
        self._ports = {name: _Ports(component) for name, component in components.items()}
        self._prefixes = {name: f"Vcomponent{number}" for number, name in enumerate(components)}
        models, arrays = [], []
        for name, component in components.items():
            verilog, component_arrays = with_arrays(kept_verilog(component), Arith(arith))
            arrays += component_arrays
            models.append(VerilogModel(self._prefixes[name], snake_case(type(component).__name__), verilog))
        folder = files("fanin.sim.cnn")
        sources = {name: (folder / name).read_text() for name in ("layer_bench.h", "layer_bench.cpp")}
        sources["components.cpp"] = self._components((folder / "components.cpp.j2").read_text())
        if arrays:
            sources["arrays.cpp"] = arrays_source(arrays)
        self._program = build_program(models, sources, optimise="-Og", quiet=quiet)

    def _components(self, text: str) -> str:
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        ports = [(self._prefixes[name], ports) for name, ports in self._ports.items()]
        return environment.from_string(text).render(components=ports)

    def run(
        self,
        name: str,
        jobs: Sequence[Job],
        *,
        loops: Mapping[str, str] = _EMPTY,
        loop_latency: int = 1,
        gates: Mapping[str, str] = _EMPTY,
        registers: Mapping[str, int] = _EMPTY,
        odds: float | Mapping[str, float] = 0.0,
        seed: int = 0,
        patience: int = 10_000,
    ) -> list[JobResult]:
        """Run ``jobs`` in order, each after all streams of the previous job have ended with ``done`` high.

        - ``loops``: input stream that each looped output stream feeds, through an unbounded queue.
        - ``loop_latency``: cycles from a transfer at a loop's output until its input may take it.
        - ``gates``: output stream that each gated input stream waits for. A frame enters the input only after
          the same frame has left the output. All frames of a job have equally many transfers.
        - ``registers``: values of the other inputs; default 0.
        - ``odds``: probability that a stream pauses, as for ``fanin.sim.rtl.stalls.Stalls``: 0 for no pauses,
          a number for phases of fast and nearly stopped sides, or constant probabilities by stream.
        - ``patience``: cycles without a transfer until the run fails.

        Raises CheckFailed of one line:

        - A stream breaks its rules: valid and payload hold until ready, and valid does not wait for ready.
        - A component offers more words than expected, up to 64 cycles after the job.
        - No transfer happens for ``patience`` cycles; the message names the waiting streams.
        """
        ports = self._ports[name]
        header = _header(ports, jobs, loops, loop_latency, gates, registers, odds, seed, patience)
        request = [*header, *(part for job in jobs for part in _job_words(ports, job, loops))]
        with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
            request_path, result_path = Path(folder) / "request", Path(folder) / "result"
            np.concatenate(request).astype(np.uint32).tofile(request_path)
            command = [str(self._program), self._prefixes[name], str(request_path), str(result_path)]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                raise CheckFailed(f"{name}: {process.stderr.strip() or f'status {process.returncode}'}")
            return _results(ports, len(jobs), np.fromfile(result_path, dtype=np.uint32))


def _header(
    ports: _Ports,
    jobs: Sequence[Job],
    loops: Mapping[str, str],
    loop_latency: int,
    gates: Mapping[str, str],
    registers: Mapping[str, int],
    odds: float | Mapping[str, float],
    seed: int,
    patience: int,
) -> Iterator[UInt32]:
    """Yield the part of a request before its jobs."""
    names = list(ports.streams)
    by_stream = odds if isinstance(odds, Mapping) else dict.fromkeys(names, odds)
    for option, names_given in (("odds", by_stream), ("registers", registers)):
        _check_names(option, names_given, names if option == "odds" else ports.registers)
    for output, input_name in loops.items():
        _check_names("loops", (output, input_name), names)
        if ports.streams[output].input or not ports.streams[input_name].input:
            raise ValueError(f"loops must lead an output into an input, not {output} into {input_name}")
        if ports.streams[output].bits != ports.streams[input_name].bits:
            raise ValueError(f"loops must join streams of one width, not {output} and {input_name}")
    for input_name, output in gates.items():
        _check_names("gates", (input_name, output), names)
        if not ports.streams[input_name].input or ports.streams[output].input:
            raise ValueError(f"gates must let an input wait for an output, not {input_name} for {output}")
    phased = bool(odds) and not isinstance(odds, Mapping)
    yield _array(len(jobs), seed, patience, loop_latency, phased)
    yield _array(*(round(by_stream.get(stream, 0.0) * _ODDS_UNITS) for stream in names))
    for streams in (loops, gates):
        yield _array(*(names.index(streams[name]) if name in streams else _NO_STREAM for name in names))
    for register, bits in ports.registers.items():
        yield _bits(registers.get(register, 0), bits)


def _check_names(option: str, names_given: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := set(names_given) - set(allowed):
        raise ValueError(f"{option} must be among {', '.join(allowed)}, not {min(unknown)}")


def _array(*words: int) -> UInt32:
    return np.array(words, dtype=np.uint32)


def _bits(value: int, bits: int) -> UInt32:
    """Return a number as 32-bit words, least significant first."""
    return np.frombuffer(value.to_bytes(_words(bits) * 4, "little"), dtype=np.uint32)


def _job_words(ports: _Ports, job: Job, loops: Mapping[str, str]) -> Iterator[UInt32]:
    """Yield a job of a request: frames, control with and without ``start``, each stream outside loops."""
    outside_loops = {
        name: stream for name, stream in ports.streams.items() if name not in {*loops, *loops.values()}
    }
    _check_names("feeds", job.feeds, [name for name, stream in outside_loops.items() if stream.input])
    _check_names("expect", job.expect, [name for name, stream in outside_loops.items() if not stream.input])
    yield _array(max(job.frames, 1))
    for start in (1, 0):
        yield _bits(job.control(start=start) if ports.control_bits else 0, ports.control_bits)
    for name, stream in outside_loops.items():
        feed = np.asarray(job.feeds.get(name, ()), dtype=np.uint32).ravel()
        count, remainder = divmod(len(feed) if stream.input else job.expect.get(name, 0), stream.words)
        if remainder:
            raise ValueError(f"{name} must have a multiple of {stream.words} words, not {remainder} more")
        yield _array(count)
        yield feed


def _results(ports: _Ports, jobs: int, words: UInt32) -> list[JobResult]:
    """Return the results of jobs. For each job ``words`` has its cycles, then each stream's transfers.

    A stream's transfers are their number, their cycles and, of an output, the words.
    """
    position = 0

    def take(count: int) -> UInt32:
        nonlocal position
        position += count
        return words[position - count : position]

    results = []
    for _ in range(jobs):
        result = JobResult({}, {}, int(take(1)[0]))
        for name, stream in ports.streams.items():
            count = int(take(1)[0])
            result.cycles_of[name] = take(count)
            if not stream.input:
                result.words[name] = take(count * stream.words)
        results.append(result)
    return results
