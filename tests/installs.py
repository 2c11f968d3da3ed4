"""An install with fewer packages than this one, and what docs have a reader type in it."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement

BLOCK = re.compile(r'^```([\w-]*)(?: title="([\w./]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
#: Run by every Python that finds it on its path when it starts, also by those inside simulators.
SITECUSTOMIZE = """
from importlib.machinery import PathFinder

absent, find = frozenset({absent!r}), PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in absent else find(name, path, target)

PathFinder.find_spec = find_spec
"""


def _name(distribution):
    return distribution.lower().replace("_", "-").replace(".", "-")


def installed_with(*extras):
    """Names of the packages that ``pip install 'fanin[extras]'`` brings, with what they need."""
    found, waiting = set(), [("fanin", extra) for extra in ("", *extras)]
    while waiting:
        package, extra = waiting.pop()
        if (package, extra) in found:
            continue
        found.add((package, extra))
        try:
            lines = requires(package) or []
        except PackageNotFoundError:  # for another system
            continue
        for line in map(Requirement, lines):
            if line.marker is None or line.marker.evaluate({"extra": extra}):
                waiting += [(_name(line.name), each) for each in ("", *line.extras)]
    return {package for package, _ in found}


def absent_modules(*extras):
    """Modules of the packages here that such an install has not."""
    present = installed_with(*extras)
    modules = packages_distributions()
    return sorted(
        module
        for module, distributions in modules.items()
        if module.isidentifier() and not {_name(each) for each in distributions} & present
    )


def environment(folder, *extras):
    """Variables of processes in such an install; ``folder`` takes a file for them."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE.format(absent=absent_modules(*extras)))
    return {"PYTHONPATH": str(folder)}


def blocks(page):
    """A page's blocks, in order: (language, title, text); one without a language is for a shell, "sh"."""
    return [(language or "sh", title, text) for language, title, text in BLOCK.findall(page.read_text())]


def shell(text, folder, **variables):
    """Type ``text`` into a shell, in ``folder`` and with more variables and all packages; what it printed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=os.environ | {"PATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def typed(text, folder, *extras):
    """Type ``text`` into a shell, in ``folder`` and in the install of some extras; what it printed."""
    return shell(text, folder, **environment(folder / ".site", *extras))
