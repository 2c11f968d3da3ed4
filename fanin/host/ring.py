"""The host's side of a ring node: jobs and descriptors in, batches of register accesses out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fanin.codec import FLOAT_BITS, Inceptionn
from fanin.hdl.ring.registers import (
    ACK_DELAY,
    RETRIES,
    TIMEOUT,
    Failure,
    ring_constants,
    ring_nic_constants,
    ring_nic_registers,
    ring_registers,
)
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.ring import MAX_NODES, MIN_NODES, RingConfig


@dataclass(frozen=True, kw_only=True)
class RingMember:
    """One node's part in a ring: ``macs`` of all nodes in the ring's order, and its place among them.

    ``timeout`` and ``ack_delay`` are in cycles. Raises ValueError that names parameter, value and limit.
    """

    id: int
    macs: Sequence[int]
    rank: int
    timeout: int = TIMEOUT
    retries: int = RETRIES
    ack_frames: int | None = None  #: the configuration's own unless given
    ack_delay: int = ACK_DELAY

    def __post_init__(self) -> None:
        nodes = len(self.macs)
        if nodes not in range(MIN_NODES, MAX_NODES + 1):
            raise ValueError(f"macs must be those of {MIN_NODES} to {MAX_NODES} nodes, not of {nodes}")
        if self.rank not in range(nodes):
            raise ValueError(f"rank must be 0 to {nodes - 1}, not {self.rank!r}")
        for name in ("timeout", "retries", "ack_frames"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value!r}")


@dataclass(frozen=True)
class RingStatus:
    """What a node does; ``posted`` of the job's descriptors were accepted, ``completed`` of these are done."""

    running: bool
    busy: bool
    failed: bool
    cause: Failure
    posted: int
    completed: int
    refused: int

    @property
    def finished(self) -> bool:
        """Nothing is to be waited for: every accepted descriptor is done, or none will ever be."""
        return not self.busy


class RingDriver(BaseDriver):
    """Batches of register accesses for a ring node of ``config`` whose registers lie at ``base``.

    A job is ``configure``, ``start``, ``post`` as often as wanted, then ``wait`` until
    the status is ``finished``.
    """

    register_map, constants = staticmethod(ring_registers), staticmethod(ring_constants)

    def __init__(self, config: RingConfig, *, base: int = 0):
        super().__init__(self.register_map(config), self.constants(config), base=base)
        self.config = config

    def configure(self, member: RingMember) -> Batch:
        """Everything that a job needs, while the node does not run; it begins with :meth:`start`."""
        nodes, batch = len(member.macs), self.batch()
        batch.write("job", job_id=member.id, nodes=nodes, rank=member.rank)
        if isinstance(self.config.codec, Inceptionn):
            batch.write("codec", bound=self.config.codec.bound, mode=self.config.codec.mode)
        for name, distance in {"own_mac": 0, "previous_mac": -1, "next_mac": 1}.items():
            batch.write(name, member.macs[(member.rank + distance) % nodes])
        batch.write("timeout", member.timeout).write("retries", member.retries)
        ack_frames = self.config.ack_frames if member.ack_frames is None else member.ack_frames
        return batch.write("acknowledge", ack_frames=ack_frames, ack_delay=member.ack_delay)

    def start(self) -> Batch:
        """Begin the job; all that the node did before ends. Descriptors count from 0 again."""
        return self.command("start")

    def post(self, address: int, count: int) -> Batch:
        """Reduce the ``count`` values from byte ``address`` on. Refused ones show in the status."""
        batch = self.batch().write("address", address).write("count", count)
        return batch.write("post", post_descriptor=1)

    def post_stripes(self, address: int, count: int, engines: int) -> list[Batch]:
        """A vector that ``engines`` share: what each one's node is to get; nothing if its stripe is empty.

        The vector is reduced when all nodes are ``finished``.
        """
        return [
            self.post(address + FLOAT_BITS // 8 * stripe.start, stripe.count) if stripe.count else self.batch()
            for stripe in self.config.stripes(count, engines)
        ]

    def wait(self) -> Batch:
        """Read the status, to be repeated until :meth:`status_of` it is ``finished``."""
        return self.batch().read("status").read("posted").read("completed").read("refused")

    @staticmethod
    def status_of(values: Sequence[Value]) -> RingStatus:
        """The status that was read."""
        fields, posted, completed, refused = values
        assert isinstance(fields, dict)
        assert isinstance(posted, int)
        assert isinstance(completed, int)
        assert isinstance(refused, int)
        running, busy, failed = (bool(fields[name]) for name in ("running", "busy", "failed"))
        cause = Failure(fields["cause"]) if failed else Failure.NONE
        return RingStatus(running, busy, failed, cause, posted, completed, refused)


class RingNicDriver(RingDriver):
    """That of a ring node with a host packet port."""

    register_map, constants = staticmethod(ring_nic_registers), staticmethod(ring_nic_constants)

    def share(self, sixteenths: int) -> Batch:
        """What the host's other traffic has of the link at least, 0 to 15 sixteenths; at any time."""
        return self.batch().write("host_share", sixteenths)
