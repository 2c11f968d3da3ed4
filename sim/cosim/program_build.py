"""Programs that drive Verilated models from C++ alone: no cocotb, no top module, no Python per cycle.

Verilator's output is compiled in as few units as there are cores, because its headers take a second per unit.
Its library is compiled once and kept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fanin.base.cache import (
    RUNTIME,
    cache_directory,
    delete_foreign,
    digest,
    entry_lock,
    make_folder,
    seal,
    unfinished_entry,
)
from fanin.sim.cosim.build import (
    COMPILER_FLAGS,
    EXECUTABLE,
    MODEL_FLAGS,
    WARNINGS_OFF,
    Verilator,
    check_build,
    compiler_version,
    find_verilator,
    kept_build,
    run_tool,
    run_verilator,
    verilator_root,
)

_CORES = min(8, os.cpu_count() or 1)
_MIN_UNIT_BYTES = 1 << 18  # least size of a unit beside others: the headers take as long to compile
_MAX_UNIT_BYTES = 1 << 23  # greatest size of a unit: the compiler's memory grows with it
_MODELS = "models"  # folder of Verilator's output
_LIBRARY = ("verilated", "verilated_threads")
_FLAGS = (
    *("-w", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DVM_TRACE=0"),
    *COMPILER_FLAGS.split(),
)


@dataclass(frozen=True)
class VerilogModel:
    """Verilog with the module ``top``, available in C++ as the class ``prefix`` in ``prefix``.h."""

    prefix: str
    top: str
    verilog: str


def build_program(
    models: Sequence[VerilogModel], sources: Mapping[str, str], *, optimise: str = "-O2", quiet: bool = False
) -> Path:
    """Return the executable of ``models`` and C++ ``sources`` (text by file name), built once and kept.

    Sources share a unit, so names in them must differ. ``optimise`` is the compiler's option for models: -Og
    halves the compile time of -O2, and its program takes a fifth more time.

    Raises InputError for a missing tool, and ToolFailed with the tool's last lines when a build fails.
    """
    check_build()
    verilator = find_verilator()
    parts = [verilator.version, compiler_version(), optimise, *_FLAGS, *MODEL_FLAGS]
    parts += [f"{m.prefix}\0{m.top}\0{m.verilog}" for m in models]
    parts += [f"{name}\0{text}" for name, text in sources.items()]
    place = kept_build(
        digest(parts), lambda work: _make(models, sources, work, verilator, optimise), quiet=quiet
    )
    return place / EXECUTABLE


def _make(
    models: Sequence[VerilogModel],
    sources: Mapping[str, str],
    work: Path,
    verilator: Verilator,
    optimise: str,
) -> None:
    for name, text in sources.items():
        (work / name).write_text(text)
    headers = _headers(work, verilator)
    with ThreadPoolExecutor(_CORES) as pool:
        library = pool.submit(_library, headers, verilator)
        list(pool.map(lambda model: _translate(model, work, verilator), models))
        units = [(_unit(work, "sources", sorted(work.glob("*.cpp"))), "-O2")]
        units += [(unit, optimise) for unit in _model_units(work)]
        objects = list(pool.map(lambda unit: _compile(unit[0], work, [unit[1], *headers]), units))
        run_tool(work, ["g++", *objects, *library.result(), "-pthread", "-o", EXECUTABLE])
    for path in work.iterdir():
        if path.name not in (EXECUTABLE, *sources):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _translate(model: VerilogModel, work: Path, verilator: Verilator) -> None:
    """Translate a model's Verilog to C++ in the folder ``models``, which all models share."""
    name = f"{model.prefix}.v"
    (work / name).write_text(model.verilog)
    arguments = ["--cc", "--prefix", model.prefix, "--top-module", model.top, "-Mdir", _MODELS, name]
    run_verilator(work, [*MODEL_FLAGS, *WARNINGS_OFF, *arguments], verilator)


def _model_units(work: Path) -> list[Path]:
    """Return units of similar size that together include all of Verilator's output."""
    paths = list((work / _MODELS).glob("*.cpp"))
    total = sum(path.stat().st_size for path in paths)
    count = max(min(_CORES, 1 + total // _MIN_UNIT_BYTES), -(-total // _MAX_UNIT_BYTES))
    files: list[list[Path]] = [[] for _ in range(count)]
    sizes = [0] * count
    for path in sorted(paths, key=lambda path: (-path.stat().st_size, path.name)):
        smallest = sizes.index(min(sizes))
        files[smallest].append(path)
        sizes[smallest] += path.stat().st_size
    return [_unit(work, f"models{number}", unit_files) for number, unit_files in enumerate(files)]


def _unit(work: Path, name: str, paths: Sequence[Path]) -> Path:
    unit = work / f"{name}.unit.cpp"
    # Verilator rejects two models in one unit because of precompiled headers, which are not used here.
    unit.write_text("".join(f'#undef VL_PCH_INCLUDED\n#include "{path.name}"\n' for path in paths))
    return unit


def _compile(source: Path, work: Path, flags: Sequence[str]) -> str:
    target = f"{source.stem}.o"
    run_tool(work, ["g++", *_FLAGS, *flags, "-c", str(source), "-o", target])
    return target


def _headers(work: Path, verilator: Verilator) -> list[str]:
    include = verilator_root(verilator) / "include"
    return [f"-I{path}" for path in (work, work / _MODELS, include, include / "vltstd")]


def _library(headers: Sequence[str], verilator: Verilator) -> list[str]:
    """Return the objects of Verilator's library, compiled if they are not in the cache."""
    folder = cache_directory() / RUNTIME / digest([verilator.version, compiler_version(), *_FLAGS])
    delete_foreign(folder)
    make_folder(folder)
    objects = [folder / f"{name}.o" for name in _LIBRARY]
    with entry_lock(folder), unfinished_entry(folder.parent) as work:
        for path in objects:
            if not path.exists():
                _compile(verilator_root(verilator) / "include" / f"{path.stem}.cpp", work, ["-O1", *headers])
                seal(work / path.name)
                (work / path.name).replace(path)
    return list(map(str, objects))
