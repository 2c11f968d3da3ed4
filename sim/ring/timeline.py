"""Timeline of tasks on resources, each of which carries out its tasks in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """Task of ``seconds``, which begins when ``resource`` is free and all ``dependencies`` have ended."""

    name: str
    resource: str
    seconds: float
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A task's run, from begin to end, in seconds."""

    task: Task
    begin: float
    end: float


def run(tasks: Sequence[Task]) -> list[Span]:
    """Return the spans of all tasks in order of their ends; a resource takes its tasks in the order listed.

    Raises ValueError if tasks wait for each other, or for a missing task.
    """
    waiting: dict[str, list[Task]] = {}
    for task in tasks:
        waiting.setdefault(task.resource, []).append(task)
    free = dict.fromkeys(waiting, 0.0)
    done: dict[str, Span] = {}
    while any(waiting.values()):
        ready = [
            queue for queue in waiting.values() if queue and all(name in done for name in queue[0].dependencies)
        ]
        if not ready:
            blocked = ", ".join(queue[0].name for queue in waiting.values() if queue)
            raise ValueError(f"tasks that can never begin: {blocked}")
        for queue in ready:
            task = queue.pop(0)
            begin = max([free[task.resource], *(done[name].end for name in task.dependencies)])
            done[task.name] = Span(task, begin, begin + task.seconds)
            free[task.resource] = begin + task.seconds
    return sorted(done.values(), key=lambda span: span.end)


def makespan(spans: Sequence[Span]) -> float:
    """Return the end of the last task, in seconds."""
    return max(span.end for span in spans)


def idle(spans: Sequence[Span], resource: str) -> float:
    """Return the seconds in which ``resource`` was idle before the last task's end."""
    return makespan(spans) - sum(span.task.seconds for span in spans if span.task.resource == resource)
