"""Host driver of a ring node: turns jobs and descriptors into batches of register accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fanin.codec.facts import Inceptionn, is_stochastic
from fanin.hdl.ring.registers import (
    ACK_DELAY,
    DIFFERS,
    FRAME_DIFFERENCES,
    JOB_DIFFERENCES,
    RETRIES,
    TIMEOUT,
    Failure,
    ring_constants,
    ring_nic_constants,
    ring_nic_registers,
    ring_registers,
)
from fanin.host.causes import cause_of
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig
from fanin.ring.golden.random_bits import RandomBits

#: Differences that a MISMATCH can report: name → description.
DIFFERENCES = JOB_DIFFERENCES | FRAME_DIFFERENCES


@dataclass(frozen=True, kw_only=True)
class RingMember:
    """Settings of a node for a job of a ring. Raises ValueError that names parameter, value and limit.

    - ``id``: number of the job.
    - ``macs``: addresses of all nodes in the ring's order; ``rank``: the node's index among them.
    - ``timeout``: cycles without progress before a PROBE, and the longest wait before a frame is sent again.
    - ``retries``: retransmissions before the node fails.
    - ``ack_frames``: frames per acknowledgement.
    - ``ack_delay``: longest delay of an acknowledgement in cycles.
    - ``watch``: probe the next node even when no descriptor is unfinished, as a check of the ring needs.
    - ``bits``: random bits of all nodes, for a codec that rounds stochastically.
    """

    id: int
    macs: Sequence[int]
    rank: int
    timeout: int = TIMEOUT
    retries: int = RETRIES
    ack_frames: int | None = None  #: None: the configuration's default
    ack_delay: int = ACK_DELAY
    watch: bool = False
    bits: RandomBits = field(default_factory=RandomBits)

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
    """Status of a node: ``posted`` descriptors were accepted in this job; ``completed`` of them are done."""

    running: bool
    busy: bool
    failed: bool
    cause: Failure
    posted: int
    completed: int
    refused: int

    @property
    def finished(self) -> bool:
        """True if no descriptor is pending: all accepted ones are done, or the node has failed."""
        return not self.busy


@dataclass(frozen=True)
class RingFindings:
    """Findings of a node about its neighbours since its job began.

    - ``differs``: names of the differences in a MISMATCH, keys of ``DIFFERENCES``.
    - ``heard_previous``: the previous node runs this job with the same settings and the right place.
    - ``heard_next``: the next node answers.
    - ``heard_stranger``: a frame of this job came from a node that is not the listed neighbour.
    """

    running: bool
    cause: Failure
    differs: tuple[str, ...]
    heard_previous: bool
    heard_next: bool
    heard_stranger: bool

    @property
    def complete(self) -> bool:
        """True if both neighbours were heard and nothing differs: the node's part of the ring is right."""
        return self.running and self.heard_previous and self.heard_next and not self.heard_stranger

    @property
    def problem(self) -> str | None:
        """Description of the problem in one line; None if none is known."""
        if self.differs:
            return "; ".join(DIFFERENCES[name] for name in self.differs)
        if self.cause in (Failure.SETTINGS, Failure.MEMORY):
            return str(cause_of(self.cause))
        if self.heard_stranger:
            return "frames of this job come from a node not listed as this one's neighbour: wrong list or cable"
        if self.cause is Failure.TIMEOUT and self.heard_next and not self.heard_previous:
            return "the previous node was never heard; the next one answered at first, and is silent now"
        if self.cause is Failure.TIMEOUT and self.heard_next:
            return "the next node answered at first, and is silent now"
        if self.cause is Failure.TIMEOUT:
            previous = (
                "the previous node was heard" if self.heard_previous else "nor was the previous node heard"
            )
            return (
                f"the next node does not answer in this job: dead, not started, or cabled elsewhere; {previous}"
            )
        return None


class RingDriver(BaseDriver):
    """Makes batches of register accesses for a ring node of ``config``; its registers start at ``base``.

    Per job: call ``configure`` and ``start``, ``post`` each descriptor, and repeat ``wait`` until the status is
    ``finished``.
    """

    register_map, constants = staticmethod(ring_registers), staticmethod(ring_constants)

    def __init__(self, config: RingConfig, *, base: int = 0):
        super().__init__(self.register_map(config), self.constants(config), base=base)
        self.config = config

    def configure(self, member: RingMember) -> Batch:
        """Write the settings of a job while the node does not run; :meth:`start` begins the job."""
        nodes, batch = len(member.macs), self.batch()
        batch.write("job", job_id=member.id, nodes=nodes, rank=member.rank)
        if isinstance(self.config.codec, Inceptionn):
            batch.write("codec", bound=self.config.codec.bound, mode=self.config.codec.mode)
        if self.config.codec and is_stochastic(self.config.codec):
            batch.write("rounding_seed", member.bits.node_seed(member.rank))
        for name, distance in {"own_mac": 0, "previous_mac": -1, "next_mac": 1}.items():
            batch.write(name, member.macs[(member.rank + distance) % nodes])
        batch.write("watch", int(member.watch))
        batch.write("timeout", member.timeout).write("retries", member.retries)
        ack_frames = self.config.ack_frames if member.ack_frames is None else member.ack_frames
        return batch.write("acknowledge", ack_frames=ack_frames, ack_delay=member.ack_delay)

    def start(self) -> Batch:
        """Begin the job and end the node's earlier one. Descriptors count from 0 again.

        A descriptor that is posted while no job runs is refused and counted in ``refused``.
        """
        return self.command("start")

    def post(self, address: int, count: int) -> Batch:
        """Post a descriptor that reduces ``count`` values from byte ``address`` on; see ``posted``,
        ``refused``.
        """
        batch = self.batch().write("address", address).write("count", count)
        return batch.write("post", post_descriptor=1)

    def post_stripes(self, address: int, count: int, engines: int) -> list[Batch]:
        """Return a batch per engine that posts the engine's stripe of a vector; empty if its stripe is empty.

        The vector is reduced when all engines' nodes are ``finished``.
        """
        size = self.config.value_bytes
        return [
            self.post(address + size * stripe.start, stripe.count) if stripe.count else self.batch()
            for stripe in self.config.stripes(count, engines)
        ]

    def wait(self) -> Batch:
        """Read the status; repeat until its :meth:`status_of` is ``finished``."""
        return self.batch().read("status").read("posted").read("completed").read("refused")

    @staticmethod
    def status_of(values: Sequence[Value]) -> RingStatus:
        """Decode the values that the batch of :meth:`wait` read."""
        fields, posted, completed, refused = values
        assert isinstance(fields, dict)
        assert isinstance(posted, int)
        assert isinstance(completed, int)
        assert isinstance(refused, int)
        running, busy, failed = (bool(fields[name]) for name in ("running", "busy", "failed"))
        cause = Failure(fields["cause"]) if failed else Failure.NONE
        return RingStatus(running, busy, failed, cause, posted, completed, refused)

    def findings(self) -> Batch:
        """Read the node's findings about its neighbours; :meth:`findings_of` decodes them."""
        return self.batch().read("status").read("mismatch").read("neighbours")

    @staticmethod
    def findings_of(values: Sequence[Value]) -> RingFindings:
        """Decode the values that the batch of :meth:`findings` read."""
        status, mismatch, neighbours = values
        assert isinstance(status, dict)
        assert isinstance(mismatch, dict)
        assert isinstance(neighbours, dict)
        cause = Failure(status["cause"]) if status["failed"] else Failure.NONE
        differs = tuple(name for name in DIFFERENCES if mismatch[f"{DIFFERS}{name}"])
        heard = {name: bool(value) for name, value in neighbours.items()}
        return RingFindings(running=bool(status["running"]), cause=cause, differs=differs, **heard)


class RingNicDriver(RingDriver):
    """Driver of a ring node with a host packet port."""

    register_map, constants = staticmethod(ring_nic_registers), staticmethod(ring_nic_constants)

    def share(self, sixteenths: int) -> Batch:
        """Set the least share of the link for the host's other traffic, 0 to 15 sixteenths, at any time."""
        return self.batch().write("host_share", sixteenths)
