"""Waveforms of commands that simulate RTL: options and files."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import CheckFailed, InputError
from fanin.base.printable import print_note
from fanin.base.scratch import write_file
from fanin.runs.option import Group, Options, option, option_flag
from fanin.runs.output import check_writable, keep_file, scratch_file
from fanin.sim.cosim.window import ALL_LEVELS, CYCLES, Window

if TYPE_CHECKING:  # --help must not wait for Amaranth to load
    from fanin.sim.cosim.waves import Waveform

NO_RTL = "--wave: nothing is simulated in RTL"
_MAX_VALUE = 10**12  # cycles or levels of modules
_DETAILS = ("wave_nodes", "wave_from", "wave_cycles", "wave_depth")
_WAVE = Group("waveform, of what runs in RTL", training=False, shown=False)
SUFFIX, GTKWAVE_SUFFIX, SURFER_SUFFIX = ".fst", ".gtkw", ".sucl"


@dataclass(frozen=True, kw_only=True)
class WaveOptions(Options):
    """Options of a run that simulates RTL, for :func:`waveform`."""

    wave: Path | None = option(
        _WAVE, None, "write signals to this file, with save files for GTKWave and Surfer", "FILE.fst"
    )
    wave_nodes: str | None = option(_WAVE, None, "nodes to trace; all by default", "N,…")
    wave_from: int | None = option(_WAVE, None, "first cycle", "CYCLE", default_text="0")
    wave_cycles: int | None = option(_WAVE, None, "number of cycles", "N", default_text=f"{CYCLES:,}")
    wave_depth: int | None = option(_WAVE, None, "levels of modules, counting the node; all by default", "D")


def forget_wave(args: argparse.Namespace) -> None:
    """Remove all waveform options from a command's arguments."""
    for name in ("wave", *_DETAILS):
        setattr(args, name, None)


@contextlib.contextmanager
def waveform(args: argparse.Namespace | WaveOptions, *, rtl: bool = True) -> Iterator[Waveform | None]:
    """Yield the waveform that ``--wave`` requests, or None; at the end, move its files to their place.

    The files are kept, too, if a check of the run fails. Raises InputError for options that do not fit the run,
    and at the end if the run ended before the window.
    """
    window = _window(args)
    if window is None:
        yield None
        return
    if not rtl:
        raise InputError(NO_RTL)
    from fanin.sim.cosim.waves import Waveform

    path = Path(args.wave or "")
    with scratch_file(path) as scratch:
        wave = Waveform(window, scratch)
        try:
            yield wave
        except CheckFailed:  # signals help to find the failure
            print_note(_keep(wave, path) or _missed_message(wave, path))
            raise
        message = _keep(wave, path)
    if not message:
        raise InputError(_missed_message(wave, path))
    print_note(message)


def _window(args: argparse.Namespace | WaveOptions) -> Window | None:
    if args.wave is None:
        if details := [name for name in _DETAILS if getattr(args, name) is not None]:
            raise InputError(f"{option_flag(details[0])}: needs --wave")
        return None
    if args.wave.suffix != SUFFIX:
        raise InputError(f"--wave {args.wave}: must end in {SUFFIX}, the format")
    for path in _files(args.wave):
        check_writable(path)
    return Window(
        first=_at_least(args, "wave_from", 0, 0),
        count=_at_least(args, "wave_cycles", 1, CYCLES),
        nodes=_nodes(args.wave_nodes),
        depth=min(_at_least(args, "wave_depth", 1, ALL_LEVELS), ALL_LEVELS),
    )


def _files(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the waveform and of the save files for GTKWave and Surfer."""
    return path, path.with_suffix(GTKWAVE_SUFFIX), path.with_suffix(SURFER_SUFFIX)


def _at_least(args: argparse.Namespace | WaveOptions, name: str, minimum: int, default: int) -> int:
    value = getattr(args, name)
    if value is not None and not minimum <= value <= _MAX_VALUE:
        raise InputError(f"{option_flag(name)} must be {minimum} to {_MAX_VALUE:,}, not {value:,}")
    return default if value is None else value


def _nodes(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"--wave-nodes must be numbers of nodes with commas between, not {text!r}")
    return tuple(sorted(set(map(int, text.split(",")))))


def _keep(wave: Waveform, path: Path) -> str:
    """Move the waveform to ``path``, write save files, and return a message; empty if nothing was recorded."""
    from fanin.sim.cosim.wave_views import gtkwave, surfer
    from fanin.sim.cosim.waves import check_complete, span

    if not wave.recorded:
        return ""
    check_complete(wave.path, path)
    _, gtkw, sucl = _files(path)
    depth, first = wave.window.depth, wave.window.first
    text = gtkwave(wave.nodes, depth=depth, wave=path, save=gtkw, span=span(wave.path))
    write_file(gtkw, text)
    write_file(sucl, surfer(wave.nodes, depth=depth))
    keep_file(wave.path, path)
    note = "" if wave.recorded == wave.window.count else ", where the run ended"
    cycles = f"cycles {first:,} to {first + wave.recorded - 1:,}{note}"
    return f"{path}: {cycles}; open it with gtkwave {gtkw}, or surfer {path} --command-file {sucl}"


def _missed_message(wave: Waveform, path: Path) -> str:
    return f"--wave-from {wave.window.first:,}: the run ended at cycle {wave.cycles:,}; {path} was not written"
