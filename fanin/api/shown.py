"""Results with a display form: text in a terminal, HTML in a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod

from fanin.base.printable import printable
from fanin.report.html import Rows
from fanin.runs.output import table

_FRAME = "width: 100%; height: 640px; border: 1px solid #8884; border-radius: 6px"


class DisplayedResult(ABC):
    """A result with a one-line title, and facts about it."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Description of the result in one line."""

    @property
    @abstractmethod
    def facts(self) -> Rows:
        """Facts that users look for first: names and values."""

    def __repr__(self) -> str:
        return printable(f"{self.title}\n{table(self.facts)}")

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><td style="text-align: left">{html.escape(name)}</td>'
            f'<td style="text-align: left">{html.escape(value)}</td></tr>'
            for name, value in self.facts
        )
        return f"<p>{html.escape(self.title)}</p><table>{cells}</table>"


def page_frame(page: str) -> str:
    """Return a page for a notebook in its own frame, which keeps styles separate.

    The page's scripts run without the notebook's origin, and may only offer files to save.
    """
    text = html.escape(page, quote=True)
    return f'<iframe style="{_FRAME}" sandbox="allow-scripts allow-downloads" srcdoc="{text}"></iframe>'
