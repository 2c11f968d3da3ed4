"""Mutate a copy of the working tree, run the tests beside what was mutated, and say what they did not notice.

``python -m tests.mutation hdl/stream -n 20``; docs/reference/mutation.md says more.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutations import Mutation, mutations

SOURCES = ("fanin", "hdl", "p4", "planner", "sim")
PARTS = SOURCES[1:]  # imported as parts of ``fanin``, wherever they lie
PATIENCE = 3  # a mutant gets so many times as long as the unbroken source, and
GRACE = 20.0  # seconds more: behind that it counts as noticed
BASELINE = 600.0  # seconds for the tests of the unbroken source


@dataclass(frozen=True)
class Mutant:
    """A mutation of the file at ``path``, relative to the tree."""

    path: str
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.path}:{self.mutation}"


def sample(tree: Path, paths: list[str], count: int, rng: random.Random) -> list[Mutant]:
    """``count`` mutants of the Python files at or below ``paths``, or all, if these are fewer."""
    every = [
        Mutant(str(file.relative_to(tree)), mutation)
        for path in paths
        for file in _sources(tree / path)
        for mutation in mutations(file.read_text())
    ]
    return sorted(rng.sample(every, min(count, len(every))), key=lambda each: (each.path, each.mutation.line))


def _sources(path: Path) -> list[Path]:
    return [path] if path.suffix == ".py" else sorted(path.rglob("*.py"))


def beside(tree: Path, path: str) -> list[str]:
    """The tests of a source: those in its folder's mirror that name its module, or else all of that folder.

    Where the mirror has no such folder it is the one above.
    """
    source = Path(path)
    folder = tree / "tests" / source.parent
    while not folder.is_dir():
        folder = folder.parent
    module = ".".join(source.with_suffix("").parts).removeprefix("fanin.")
    files = sorted(folder.glob("test_*.py"))
    naming = [file for file in files if f"fanin.{module} " in file.read_text()]
    return [str(each.relative_to(tree)) for each in naming or [folder]]


#: For each Python of the lane: the finder of an editable package, which environment.sh puts first, comes last.
COPY_FIRST = """import sys
sys.meta_path.sort(key=lambda finder: "EditableFinder" in getattr(finder, "__name__", ""))
"""


class Lane:
    """A copy of the tree in ``directory``, in which mutants live one after the other."""

    def __init__(self, tree: Path, directory: Path, seed: int):
        self.copy, self.seed = directory, seed
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in (
            subprocess.run(listed, cwd=tree, capture_output=True, check=True).stdout.decode().split("\0")
        ):
            if name and (tree / name).is_file():
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(tree / name, directory / name)
        for part in PARTS:  # as a wheel has them, so that this copy is found before the installed package
            (directory / "fanin" / part).symlink_to(Path("..") / part)
        (directory / "sitecustomize.py").write_text(COPY_FIRST)
        self.seconds: dict[tuple[str, ...], float] = {}

    def notices(self, mutant: Mutant) -> bool:
        """Whether a test fails, or does not end in time, with a mutant in place of its source.

        Raises RuntimeError when the tests do not pass with the unbroken source.
        """
        tests = tuple(beside(self.copy, mutant.path))
        if tests not in self.seconds:
            began = time.monotonic()
            if not self._pass(tests, BASELINE):
                raise RuntimeError(f"unbroken, but not passed within {BASELINE:.0f} s: {' '.join(tests)}")
            self.seconds[tests] = time.monotonic() - began
        file = self.copy / mutant.path
        source = file.read_text()
        try:
            file.write_text(mutant.mutation.apply(source))
            return not self._pass(tests, PATIENCE * self.seconds[tests] + GRACE)
        finally:
            file.write_text(source)

    def _pass(self, tests: tuple[str, ...], timeout: float) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
        environment = os.environ | {
            "PYTHONPATH": str(self.copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "FANIN_SEED": str(self.seed),
        }
        process = subprocess.Popen(
            [*command, *tests],
            cwd=self.copy,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """A process and all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, 9)
        process.wait()
