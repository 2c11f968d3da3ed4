"""Run the README's two commands as on a fresh machine: ``make test-bare``, ``python3 tests/bare.py [TARGET…]``.

The environment is a clone of HEAD in a temporary folder, an empty home and cache, the user ``nobody`` if root
calls, and no variables but those of pip and the network. PATH holds links to the programs of Debian's essential
packages, of the packages that the README names, and of their dependencies. A step that needs more fails, even
if this machine has it. TARGETs are make's, by default ``demo demo test``; the time of each is printed.
Exit status 1 if a target fails, 2 without Debian's dpkg.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: The README's programs, as Debian calls the packages.
PACKAGES = ("python3", "python3-venv", "python3-dev", "g++", "make", "perl", "git")
FOLDERS = tuple(map(Path, ("/usr/bin", "/bin", "/usr/sbin", "/sbin")))
KEPT = re.compile(r"PIP_.*|.*_proxy|SSL_CERT_.*|REQUESTS_CA_BUNDLE", re.IGNORECASE)  # variables
FIELDS = "${Package}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n"


def _names(relations: str) -> set[str]:
    """Package names of a field of dpkg's, all alternatives included."""
    return {re.split(r"[\s:(]", part.strip(), maxsplit=1)[0] for part in re.split(r"[,|]", relations)} - {""}


def closure(table: str, wanted: tuple[str, ...]) -> set[str]:
    """Installed packages that are essential, in ``wanted``, or that those depend on.

    ``table`` is what ``dpkg-query --show`` prints in the format ``FIELDS``.
    """
    depends, providers, chosen = {}, {}, set()
    for line in table.splitlines():
        package, essential, provides, relations = line.split("\t")
        depends[package] = _names(relations)
        for name in {package, *_names(provides)}:
            providers.setdefault(name, set()).add(package)
        if essential == "yes":
            chosen.add(package)
    left = [*chosen, *(package for name in wanted for package in providers.get(name, ()))]
    chosen.update(left)
    while left:
        for name in depends[left.pop()]:
            new = providers.get(name, set()) - chosen
            chosen |= new
            left += new
    return chosen


def programs(packages: set[str]) -> Iterator[Path]:
    """Programs of installed packages, and the links to them that update-alternatives made."""
    listed = subprocess.run(
        ["dpkg-query", "--listfiles", *packages], capture_output=True, text=True, check=True
    )
    files = {Path(line) for line in listed.stdout.splitlines() if Path(line).parent in FOLDERS}
    files = {path for path in files if path.is_file() and os.access(path, os.X_OK)}
    yield from files
    resolved = {path.resolve() for path in files}
    for alternative in Path("/etc/alternatives").iterdir():
        link = Path("/usr/bin") / alternative.name
        if link.is_symlink() and link.resolve() in resolved:
            yield link


def link_programs(folder: Path) -> None:
    """Make ``folder`` the PATH of a fresh machine."""
    folder.mkdir()
    table = subprocess.run(
        ["dpkg-query", "--show", "--showformat", FIELDS], capture_output=True, text=True, check=True
    )
    for path in programs(closure(table.stdout, PACKAGES)):
        link = folder / path.name
        if not link.is_symlink():
            link.symlink_to(path)


def run(target: str, clone: Path, environment: dict[str, str], user: list[str]) -> bool:
    """Run a target of make in the clone; print its wall-clock and processor time. Returns whether it passed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*user, "make", target], cwd=clone, env=environment, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    result = "passed" if done.returncode == 0 else f"failed with status {done.returncode}"
    print(
        f"test-bare: make {target} {result}: {time.monotonic() - start:.0f} s, "
        f"{processor:.0f} s of processor time",
        flush=True,
    )
    return done.returncode == 0


def main(targets: list[str]) -> int:
    """Run all targets, also those after one that fails."""
    if shutil.which("dpkg-query") is None:
        print("test-bare: needs Debian's dpkg, which says what a fresh machine holds", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fanin-bare-") as name:
        folder, user = Path(name), []
        link_programs(folder / "bin")
        clone, home = folder / "fanin", folder / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            user = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            user += ["--inh-caps=-all", "--bounding-set=-all"]
            subprocess.run(["chown", "--recursive", f"{nobody.pw_uid}:{nobody.pw_gid}", folder], check=True)
        environment = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
        environment |= {"HOME": str(home), "PATH": str(folder / "bin"), "LANG": "C.UTF-8"}
        if "CI" in os.environ:
            environment["CI"] = os.environ["CI"]
        passed = [run(target, clone, environment, user) for target in targets]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["demo", "demo", "test"]))
