"""Results that show themselves: as text in a terminal, as a page in a notebook."""

from __future__ import annotations

import html
import webbrowser
from abc import ABC, abstractmethod
from pathlib import Path

from fanin.cli.output import table, write_file
from fanin.report.html import Rows

_FRAME = "width: 100%; height: 640px; border: 1px solid #8884; border-radius: 6px"


class Shown(ABC):
    """A result: a line that says what it is, and facts about it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What this is, in one line."""

    @property
    @abstractmethod
    def facts(self) -> Rows:
        """What a user wants to know first: names and values."""

    def __repr__(self) -> str:
        return f"{self.title}\n{table(self.facts)}"

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td style="text-align: left">{html.escape(name)}</td>'
            f'<td style="text-align: left">{html.escape(value)}</td></tr>'
            for name, value in self.facts
        )
        return f"<p>{html.escape(self.title)}</p><table>{cells}</table>"


class Paged(Shown):
    """A result that has a page, too: the report that its command writes."""

    @property
    @abstractmethod
    def page(self) -> str:
        """The report: one HTML document that refers to nothing outside itself."""

    def _repr_html_(self) -> str:
        """The facts, and the page in a frame, so that its styles stay its own."""
        frame = f'<iframe style="{_FRAME}" srcdoc="{html.escape(self.page, quote=True)}"></iframe>'
        return super()._repr_html_() + frame

    def open(self, path: str | Path = "report.html") -> None:
        """Write the page to ``path`` and open it in a browser."""
        path = Path(path)
        write_file(path, self.page)
        webbrowser.open(path.resolve().as_uri())
