"""Events as a message-sequence chart: a line a step, the workers' lifelines and, at the right, the switch's."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.sim.checker.system import DOWN, Event

_WIDTH = 28  # from a lifeline to the next
_LIFE, _RIGHT, _LEFT, _LINE, _MARK = "│", "►", "◄", "─", "●"
_LOCAL = {
    "submit": "begins: {message}",
    "timeout": "timeout: {message} again",
    "lose": "{message} is lost on its way {way}",
    "duplicate": "{message} on its way {way} will come twice",
    "delay": "{message} on its way {way} is delayed",
}


def chart(events: Sequence[Event], *, workers: int) -> str:
    """The chart, with a head. Messages are drawn when they arrive; what else happens is told at the right."""
    names = [f"worker {worker}" for worker in range(workers)] + ["switch"]
    head = "".join(name.ljust(_WIDTH) for name in names).rstrip()
    lines = [f"{number:>3}  {_line(event, workers)}" for number, event in enumerate(events, start=1)]
    return "\n".join([f"     {head}", *lines])


def _line(event: Event, workers: int) -> str:
    cells = list((_LIFE.ljust(_WIDTH) * workers) + _LIFE)
    message = f"{event.message.kind.name} s{event.slot} r{event.message.round}"
    own, switch = event.worker * _WIDTH, workers * _WIDTH
    if event.name in _LOCAL:
        cells[own] = _MARK
        way = f"to worker {event.worker}" if event.way == DOWN else f"from worker {event.worker}"
        told = _LOCAL[event.name].format(message=message, way=way)
        return "".join(cells) + f"  {told}"
    cells[own + 1 : switch] = _LINE * (switch - own - 1)
    cells[own + 1 if event.way == DOWN else switch - 1] = _LEFT if event.way == DOWN else _RIGHT
    text = f" {message}{', late' * (event.name == 'deliver late')} "
    at = own + (_WIDTH - len(text)) // 2
    cells[at : at + len(text)] = text
    return "".join(cells)
