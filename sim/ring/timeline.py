"""Tasks on resources, each of which does its own in a fixed order: when does everything begin and end?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """``seconds`` on ``resource``, begun when the resource is free and all tasks in ``after`` have ended."""

    name: str
    resource: str
    seconds: float
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """From when to when a task ran."""

    task: Task
    begin: float
    end: float


def run(tasks: Sequence[Task]) -> list[Span]:
    """The spans of all tasks in order of their ends; a resource takes its tasks in the order they are listed.

    Raises ValueError where tasks wait for one another, or for one that is not there.
    """
    waiting: dict[str, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(task.resource, []).append(task)
    free = dict.fromkeys(waiting, 0.0)
    done: dict[str, Span] = {}
    while any(waiting.values()):
        ready = [queue for queue in waiting.values() if queue and all(name in done for name in queue[0].after)]
        if not ready:
            heads = ", ".join(queue[0].name for queue in waiting.values() if queue)
            raise ValueError(f"tasks that can never begin: {heads}")
        for queue in ready:
            task = queue.pop(0)
            begin = max([free[task.resource], *(done[name].end for name in task.after)])
            done[task.name] = Span(task, begin, begin + task.seconds)
            free[task.resource] = begin + task.seconds
    return sorted(done.values(), key=lambda span: span.end)


def makespan(spans: Sequence[Span]) -> float:
    """Seconds until everything is done."""
    return max(span.end for span in spans)


def idle(spans: Sequence[Span], resource: str) -> float:
    """Seconds in which ``resource`` did nothing although something was left to do somewhere."""
    return makespan(spans) - sum(span.task.seconds for span in spans if span.task.resource == resource)
