"""Results that show themselves: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod

from fanin.report.html import Rows
from fanin.runs.output import table

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


def page_frame(page: str) -> str:
    """A page in a notebook: in a frame of its own, so that its styles stay its own."""
    return f'<iframe style="{_FRAME}" srcdoc="{html.escape(page, quote=True)}"></iframe>'
