"""Agreement of workers in separate processes on the least of their numbers, by AllReduces of the switch."""

from __future__ import annotations

import selectors
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from fanin.base.errors import ToolFailed
from fanin.host.ethernet import Interface, open_interface
from fanin.job import SWITCH, default_member
from fanin.tree import Tree
from fanin.wire.aggregation import (
    ETHERTYPE_AGGREGATION,
    AggPacket,
    Encap,
    Kind,
    decode_payload,
    encode,
    header_length,
    payload_length,
)
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4
from fanin.wire.fields import byte_length

RADIX = 8  # base of the digits: a packet has a value for each digit, and GLM jobs have 8 values or more
DIGITS = 8  # digits of a number: enough for 16.7 million epochs
SLOTS = DIGITS  #: one for each digit
MAX_NUMBER = RADIX**DIGITS - 1
_RESEND_S = 0.05  # seconds until a packet without a RESULT is sent again
_FIRST_ROUND = 1


class Agreement:
    """Agreement on the least number of all workers of a job.

    The number is found digit by digit, the most significant digit first. Each worker whose number may still be
    the least contributes a 1 at the place of its digit. The first place with a sum above 0 is the least
    number's digit. Each digit is an AllReduce in its own slot. An ACK would let the switch use the slot again;
    no slot is used twice, so none is sent.

    - ``names``: Linux interface of each local worker.
    - ``workers``: numbers of the local workers.
    - ``tree``: the tree of switches; None: one switch, and default addresses.
    - ``job``: id of the workers' job.
    - ``base``: first of ``SLOTS`` slots of the job that nothing else uses.
    - ``encap``: encapsulation of the job's packets.
    - ``values``: values of a packet of the job, at least ``RADIX``.
    - ``timeout``: seconds to wait for the other workers.

    See docs/systems/glm.md, "Training that survives".
    """

    def __init__(
        self,
        names: Sequence[str],
        workers: Sequence[int],
        *,
        tree: Tree | None = None,
        job: int,
        base: int,
        encap: Encap,
        values: int,
        timeout: float,
    ):
        if values < RADIX:
            raise ValueError(f"values must be at least {RADIX}, not {values}")
        self._names, self._workers, self._job, self._base = names, workers, job, base
        self._members = {
            worker: tree.workers[worker] if tree else (default_member(worker), SWITCH) for worker in workers
        }
        self._encap, self._values, self._timeout = encap, values, timeout

    def minimum(self, number: int) -> int:
        """Return the least number of all workers; the local workers have ``number``.

        Raises ToolFailed if another worker does not answer within ``timeout`` seconds or if the switch returns
        sums that no worker can have contributed. Raises InputError if an interface cannot be used, and
        ValueError if ``number`` is not in 0…``MAX_NUMBER``.
        """
        if not 0 <= number <= MAX_NUMBER:
            raise ValueError(f"number must be in 0…{MAX_NUMBER}, not {number!r}")
        minimum, is_candidate = 0, True
        with ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            interfaces = {
                worker: stack.enter_context(open_interface(name))
                for worker, name in zip(self._workers, self._names, strict=True)
            }
            for interface in interfaces.values():
                selector.register(interface, selectors.EVENT_READ)
            for place in range(DIGITS):
                own_digit = number // RADIX ** (DIGITS - 1 - place) % RADIX
                sums = self._sum(interfaces, selector, place, own_digit if is_candidate else None)
                digit = next((index for index, count in enumerate(sums[:RADIX]) if count), None)
                if digit is None:  # at least one worker is a candidate, and contributes a 1
                    raise ToolFailed(
                        f"job {self._job}: the switch returned zeros for slot {self._base + place}"
                    )
                is_candidate = is_candidate and own_digit == digit
                minimum = RADIX * minimum + digit
        return minimum

    def _sum(
        self,
        interfaces: Mapping[int, Interface],
        selector: selectors.BaseSelector,
        place: int,
        digit: int | None,
    ) -> tuple[int, ...]:
        """Return, for each digit, the number of candidates that have it at ``place``, 0 for the first.

        The local workers contribute ``digit``; None: they are no candidates any more. The packet is sent every
        ``_RESEND_S`` until the RESULT arrives. Raises ToolFailed after ``timeout``.
        """
        slot = self._base + place
        values = tuple(int(index == digit) for index in range(self._values))
        frames = {
            worker: encode(
                AggPacket(Kind.AGG, self._job, slot, _FIRST_ROUND, member.bitmap, values),
                encap=self._encap,
                source=member.endpoint,
                destination=switch,
            )
            for worker, (member, switch) in self._members.items()
        }
        deadline, resend_time = time.monotonic() + self._timeout, 0.0
        while (now := time.monotonic()) < deadline:
            if now >= resend_time:
                for worker, interface in interfaces.items():
                    interface.send(frames[worker])
                resend_time = now + _RESEND_S
            selector.select(max(resend_time - time.monotonic(), 0))
            for interface in interfaces.values():
                for _, frame in interface.receive():
                    if (sums := self._result(frame, slot)) is not None:
                        return sums
        raise ToolFailed(f"TIMEOUT: the other workers have not come to job {self._job} in {self._timeout:g} s")

    def _result(self, frame: bytes, slot: int) -> tuple[int, ...] | None:
        """Return the sums of a RESULT of this slot; None for other frames."""
        header_bytes = header_length(self._encap)  # of all headers before the payload
        ethernet_bytes = byte_length(ETHERNET)  # of the Ethernet header, which ends with the EtherType
        ethertype = ETHERTYPE_AGGREGATION if self._encap is Encap.L2 else ETHERTYPE_IPV4
        if int.from_bytes(frame[ethernet_bytes - 2 : ethernet_bytes], "big") != ethertype:
            return None
        if len(frame) < header_bytes + payload_length(self._values):
            return None
        packet = decode_payload(frame[header_bytes:], self._values)
        header = (packet.kind, packet.job, packet.slot, packet.round)
        return packet.values if header == (Kind.RESULT, self._job, slot, _FIRST_ROUND) else None
