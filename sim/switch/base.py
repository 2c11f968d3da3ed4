"""What every switch of the simulation offers: jobs, frames in, frames out, counters
(docs/systems/aggregation.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import NamedTuple

from fanin.job import Job, JobCounters, Member, SwitchCounters

__all__ = [
    "Delivery",
    "Job",
    "JobCounters",
    "Member",
    "SlotRegisters",
    "Switch",
    "SwitchCounters",
    "SwitchKind",
]


class SwitchKind(StrEnum):
    """What takes the switch's place in a simulation."""

    EMBEDDED = "embedded"  # the emitted P4 text, executed by fanin
    BMV2 = "bmv2"  # the same text, compiled by p4c and executed by simple_switch_grpc
    REFERENCE = "reference"  # docs/systems/aggregation.md in plain Python


Delivery = tuple[int, bytes, int]  # port, frame without FCS, time in ps


class SlotRegisters(NamedTuple):
    """What a switch keeps for one slot; ``sums`` is empty in a fresh one."""

    round: int
    seen: int
    sums: tuple[int, ...]
    ack_round: int
    ack_seen: int


class Switch(ABC):
    """A switch that aggregates. Time passes through it unchanged: its latency belongs to the network."""

    @abstractmethod
    def add_job(self, job: Job) -> None:
        """Reset the job's slots and admit its members. ValueError when the id or a slot is taken."""

    @abstractmethod
    def remove_job(self, job_id: int) -> None:
        """Remove the members; packets of this id are foreign from now on."""

    @abstractmethod
    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Hand in a frame without FCS; what it causes, as (port, frame, time), in order."""

    @abstractmethod
    def job_counters(self, job_id: int) -> JobCounters:
        """Counters of a job; they outlive its removal."""

    @abstractmethod
    def counters(self) -> SwitchCounters:
        """Counters of the switch."""


class OutsideSwitch(Switch):
    """A switch outside the simulation: frames come from it at any time, not as answers alone."""

    @property
    @abstractmethod
    def next_look(self) -> int:
        """When, in ps, to look for frames again at the latest."""

    @abstractmethod
    def look(self, time: int) -> list[Delivery]:
        """The frames that have come, as (port, frame, time). Waits where simulated time is ahead."""
