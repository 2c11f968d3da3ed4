"""Interface of every switch in the simulation: jobs, frames in, frames out, counters.

docs/systems/aggregation.md specifies it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
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
    """Implementation of the switch in a simulation."""

    EMBEDDED = "embedded"  # the emitted P4 text, executed by fanin
    BMV2 = "bmv2"  # the same text, compiled by p4c and executed by simple_switch_grpc
    REFERENCE = "reference"  # docs/systems/aggregation.md in plain Python


Delivery = tuple[int, bytes, int]  # port, frame without FCS, time in ps


class SlotRegisters(NamedTuple):
    """A switch's state of one slot.

    - ``round``, ``seen``, ``sums``: current round, bitmap of members whose AGG arrived in it, and their sums
      (empty in an unused slot).
    - ``ack_round``, ``ack_seen``: round and bitmap of ACKs.
    - ``total``: below the root: whether the parent's RESULT of ``round`` has arrived, so that ``sums`` are the
      tree's.
    - ``confirmed``: below the root: whether the parent's CONFIRM of ``ack_round`` has arrived.
    """

    round: int
    seen: int
    sums: tuple[int, ...]
    ack_round: int
    ack_seen: int
    total: bool = False
    confirmed: bool = False


class Switch(ABC):
    """An aggregating switch. It adds no time: its latency belongs to the network."""

    @abstractmethod
    def add_job(self, job: Job) -> None:
        """Reset the job's slots and admit its members. Raises ValueError if the id or a slot is taken."""

    @abstractmethod
    def remove_job(self, job_id: int) -> None:
        """Remove the members; packets with this id are foreign from now on."""

    @abstractmethod
    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Inject a frame without FCS; return the frames that it causes, as (port, frame, time), in order."""

    @abstractmethod
    def job_counters(self, job_id: int) -> JobCounters:
        """Return the counters of a job, which outlive its removal."""

    @abstractmethod
    def counters(self) -> SwitchCounters:
        """Return the counters of the switch."""


class OutsideSwitch(Switch):
    """A switch outside the simulation: its frames may arrive at any time, not only as answers."""

    @property
    @abstractmethod
    def next_poll(self) -> int:
        """Latest time of the next :meth:`poll`, in ps."""

    @abstractmethod
    def poll(self, time: int, busy: Collection[int] = ()) -> list[Delivery]:
        """Return the frames received, as (port, frame, time). Waits if simulated time is ahead of real time.

        - ``busy``: ports whose nodes have many frames to take; frames for them should stay outside.
        """
