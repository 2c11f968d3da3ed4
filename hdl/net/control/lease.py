"""Lease of a board: its holder, the last request executed, and the offer of the next lease."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.control.headers import IP_BITS, LEASE_BITS, MAC_BITS, SEQUENCE_BITS
from fanin.wire.control import FIRST_SEQUENCE


class Verdict(enum.Enum, shape=3):  # type: ignore[call-arg]
    """Decision on a request."""

    CARRY_OUT = 0
    REPEAT = 1  #: the request was executed before: send the same answer again
    STALE = 2  #: the request is older than the last one
    HELD = 3  #: another lease holds the board
    UNKNOWN = 4  #: no lease holds the board, and the request does not take an offer to its address
    FOREIGN = 5  #: the last lease, but from another address: not answered


def check_lease(lease_cycles: int) -> None:
    """Raise ValueError unless a lease may last ``lease_cycles`` cycles."""
    if not 2 <= lease_cycles <= 1 << 36:
        raise ValueError(f"lease_cycles must be 2 to 2^36, not {lease_cycles!r}")


class LeaseKeeper(wiring.Component):
    """Checker of requests by lease, address and sequence number, which stores the last request executed.

    An offer is a number for the next lease, together with the only address that may take it.

    Members
    -------
    ``lease`` : In, 32
        Lease of the request.
    ``sequence`` : In, 32
        Sequence number of the request.
    ``host`` : In, 32
        IPv4 address of the request's sender.
    ``mac`` : In, 48
        MAC address of the request's sender.
    ``releases`` : In, 1
        The request gives up the lease.
    ``verdict`` : Out, Verdict
        Decision on the request.
    ``accept`` : In, 1
        Apply the verdict: CARRY_OUT makes the request the last one; CARRY_OUT and REPEAT prove that the host is
        alive. The request must have been constant for two cycles.
    ``hello`` : In, 1
        Pulse: draw a new offer for ``host`` and ``mac``; the previous offer ends.
    ``number`` : In, 32
        Random number for an offer; a new one in each cycle.
    ``offer`` : Out, 32
        Last offer. 0 and the number of the last lease are replaced by a new draw.
    ``holder`` : Out, 32
        IPv4 address of the host that holds the board; 0 for none.
    ``holder_mac`` : Out, 48
        MAC address of the current or last holder, to which the lease is bound.

    Parameters
    ----------
    ``lease_cycles`` : int, cycles, 2 to 2^36
        Time of silence after which the board is free.

    Latency
    -------
    - 2 cycles from a request to ``verdict``.
    - ``lease_cycles`` from ``accept`` to the end of a lease, 1 more to ``verdict``.
    - 2 cycles from ``hello`` to ``offer``, 2 more for each number that is drawn again.

    Source
    ------
    docs/systems/boards.md, "Control".
    """

    def __init__(self, *, lease_cycles: int):
        check_lease(lease_cycles)
        self.lease_cycles = lease_cycles
        super().__init__(
            {
                "lease": In(LEASE_BITS),
                "sequence": In(SEQUENCE_BITS),
                "host": In(IP_BITS),
                "mac": In(MAC_BITS),
                "releases": In(1),
                "verdict": Out(Verdict),
                "accept": In(1),
                "hello": In(1),
                "number": In(LEASE_BITS),
                "offer": Out(LEASE_BITS),
                "holder": Out(IP_BITS),
                "holder_mac": Out(MAC_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep the last lease after its end: its requests may still arrive twice."""
        m = Module()
        lease = Signal(LEASE_BITS)
        last = Signal(SEQUENCE_BITS)
        host = Signal(IP_BITS)
        is_held = Signal()
        cycles_left = Signal(range(self.lease_cycles))
        sequence_lead = Signal(SEQUENCE_BITS)
        is_last_lease = Signal()
        is_last_host = Signal()  # the address that the last lease is bound to
        is_first = Signal()
        m.d.sync += [
            sequence_lead.eq(self.sequence - last),
            is_last_lease.eq(self.lease == lease),
            is_last_host.eq((self.host == host) & (self.mac == self.holder_mac)),
            is_first.eq(self.sequence == FIRST_SEQUENCE),
        ]
        offer_taken = Signal()
        offered = self._offer(m, lease, offer_taken)
        same_host_verdict = Mux(
            sequence_lead == 0, Verdict.REPEAT, Mux(sequence_lead[-1], Verdict.STALE, Verdict.CARRY_OUT)
        )
        same_lease_verdict = Mux(is_last_host, same_host_verdict, Verdict.FOREIGN)
        other_lease_verdict = Mux(
            is_held, Verdict.HELD, Mux(is_first & offered, Verdict.CARRY_OUT, Verdict.UNKNOWN)
        )
        was_held = Signal()  # ``is_held`` as the verdict saw it: a repeat at the last moment keeps the lease
        m.d.sync += [
            self.verdict.eq(Mux(is_last_lease, same_lease_verdict, other_lease_verdict)),
            was_held.eq(is_held),
        ]
        m.d.comb += self.holder.eq(Mux(is_held, host, 0))
        m.d.sync += cycles_left.eq(cycles_left - 1)
        with m.If(cycles_left == 0):
            m.d.sync += is_held.eq(0)
        carries_out = self.verdict == Verdict.CARRY_OUT
        with m.If(self.accept & (carries_out | (self.verdict == Verdict.REPEAT))):
            m.d.sync += [cycles_left.eq(self.lease_cycles - 2), is_held.eq(was_held)]
            with m.If(carries_out):
                m.d.comb += offer_taken.eq(~is_last_lease)
                m.d.sync += [
                    lease.eq(self.lease),
                    last.eq(self.sequence),
                    host.eq(self.host),
                    self.holder_mac.eq(self.mac),
                    is_held.eq(~self.releases),
                ]
        return m

    def _offer(self, m: Module, lease: Signal, offer_taken: Signal) -> Value:
        """Draw offers; return whether the request has the offer's lease and address.

        An offer that was taken equals the last lease, which is checked separately. Before the first hello the
        offer is 0, which no lease is. Neither offer is drawn again, since no host would see the new number.
        """
        offer_stands = Signal()
        host = Signal(IP_BITS)
        mac = Signal(MAC_BITS)
        unfit = Signal()  # the previous cycle's offer is 0 or the last lease
        has_offered_lease = Signal()
        has_offered_host = Signal()
        m.d.sync += [
            unfit.eq((self.offer == 0) | (self.offer == lease)),
            has_offered_lease.eq(self.lease == self.offer),
            has_offered_host.eq((self.host == host) & (self.mac == mac)),
        ]
        with m.If(offer_taken):
            m.d.sync += offer_stands.eq(0)
        with m.If(self.hello):
            m.d.sync += [offer_stands.eq(1), host.eq(self.host), mac.eq(self.mac)]
        with m.If(self.hello | offer_stands & unfit):
            m.d.sync += self.offer.eq(self.number)
        return has_offered_lease & has_offered_host
