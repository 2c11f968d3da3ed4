"""What users see of one run per system, kept as text, so that a change of it is seen before it is made.

    python -m tests.frozen [NAME…]    # write the texts anew, of all runs or of those named

``tests/frozen/NAME`` holds ``summary.txt`` (stdout), ``run.json``, ``provenance.json`` and ``page.txt``, the
text of the report. Versions, paths, times and digests are left out, and floats have four digits, since they
differ between machines.
``--help`` of every command is kept in ``docs/reference/commands``.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from fanin.cli.main import main

FOLDER = Path(__file__).parent
#: Commands by the name of their folder; ``{}`` is what they write.
COMMANDS = {
    "glm": "train breast_cancer --preset tiny --workers 2 --epochs 2 -o {}",
    "glm_lossy": "train breast_cancer --preset tiny --workers 2 --epochs 2 --drop 0.02 --seed 7 -o {}",
    "ring": "ring train --layers 64,16,10 --nodes 2 --epochs 1 --batch 128 --on model -o {}",
    "ring_rtl": "ring train --layers 64,16,10 --nodes 2 --epochs 1 --batch 128 -o {}",
    "inceptionn": "ring train --system inceptionn --layers 64,16,10 --nodes 4 --epochs 1 --batch 128 -o {}",
    "param_server": "ps train --workers 2 --epochs 1 --no-optimum --on model -o {}",
    "param_server_rtl": "ps train --workers 2 --epochs 1 --no-optimum -o {}",
    "cluster": "cluster run --on golden --epochs 1 -o {}",
    "plan": "plan digits_cnn arria10x1 --workers 1 -o {}",
}
#: Fields of a file that differ between machines, sources or minutes.
APART = {
    "run.json": ("fanin", "verilog_sha256", "build"),
    "plan.json": ("solver",),
    "provenance.json": ("fanin", "versions", "machine", "working_directory", "results", "verilog"),
}
_DIGEST = re.compile(r"\b[0-9a-f]{12}(?=…)")
_NOISE = re.compile(r"(?<=at most )\S+(?= from binary64)|(?<=\nseconds\n)\S+")  #: of sums, and of a search


class _Text(HTMLParser):
    """The visible text of a page, a line a piece; of a chart its axes, and each series with its points."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._tag, self._is_chart = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag, self._is_chart = tag, ("type", "application/json") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._tag, self._is_chart = "", False

    def handle_data(self, data: str) -> None:
        if self._is_chart:
            self.lines += _chart(json.loads(data))
        elif self._tag not in ("script", "style") and (text := " ".join(data.split())):
            self.lines.append(text)


def _chart(figure: dict[str, Any]) -> Iterator[str]:
    axes = (axis for axis in sorted(figure["layout"]) if "axis" in axis)
    titles = (figure["layout"][axis].get("title") for axis in axes)
    yield f"chart: {', '.join(title if isinstance(title, str) else str(title) for title in titles)}"
    for trace in figure["data"]:
        yield f"  {trace['type']} {trace.get('name')}: {len(trace.get('x', trace.get('values', ())))} points"


def observed(command: str) -> dict[str, str]:
    """The texts of one run, by the names of their files. Raises AssertionError where it fails."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main(command.format(folder).split()) == 0
        texts = {"summary.txt": out.getvalue()}
        for name, apart in APART.items():
            if (folder / name).exists():
                value = json.loads((folder / name).read_bytes())
                found = {key: "…" if key in apart else _stable(each) for key, each in value.items()}
                texts[name] = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        page = _Text()
        page.feed((folder / "report.html").read_text())
        texts["page.txt"] = "\n".join(page.lines) + "\n"
        return {name: _normal(text.replace(str(folder), "RUN")) for name, text in texts.items()}


def kept(name: str) -> dict[str, str]:
    """The texts that are kept of a run."""
    return {path.name: path.read_text() for path in sorted((FOLDER / name).iterdir())}


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stable(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_stable(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _normal(text: str) -> str:
    return _NOISE.sub("…", _DIGEST.sub("", text))


def write(names: list[str]) -> None:
    """Write the texts of these runs."""
    for name in names:
        texts = observed(COMMANDS[name])
        (FOLDER / name).mkdir(exist_ok=True)
        for file, text in texts.items():
            (FOLDER / name / file).write_text(text)
        print(name, {file: len(text) for file, text in texts.items()}, file=sys.stderr)
