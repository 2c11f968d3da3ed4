"""Host driver of a parameter server's node: makes batches of register accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fanin.hdl.param_server.registers import param_server_constants, param_server_registers
from fanin.hdl.param_server.server_control import Refusal
from fanin.hdl.rdma.registers import TIMEOUT
from fanin.host.driver import Batch, Value
from fanin.param_server.facts import VERSION_BYTES, ServerLayout
from fanin.rdma.facts import Connection, RdmaConfig
from fanin.rdma.nic_driver import NicDriver
from fanin.wire.ethernet import Endpoint


@dataclass(frozen=True)
class ServerStatus:
    """Status of a parameter server.

    - ``busy``: the server is at work.
    - ``exhausted``: all versions of w are used up.
    - ``version``: number of updates begun.
    - ``staleness``: sum of the staleness of all updates.
    - ``stalest``: largest staleness of an update.
    - ``gone``: workers that the server has excluded.
    """

    busy: bool
    exhausted: bool
    version: int
    staleness: int
    stalest: int
    gone: tuple[int, ...]
    #: Why the last ``set_worker``, ``start``, ``exclude`` or ``readmit`` was refused.
    refused: Refusal = Refusal.NONE
    drained: tuple[int, ...] = ()  #: workers of ``gone`` that can be readmitted


class ParamServerDriver(NicDriver):
    """Makes batches of register accesses for a node of ``config``; its registers start at ``base``.

    To run a job:

    1. ``configure`` the node and ``connect`` the queue pairs;
    2. ``set_job``;
    3. ``set_worker`` for each worker; wait until the status field ``setting`` is 0 after each;
    4. write w into row 0 of memory, and zeros into the rest;
    5. ``start``.

    ``run(False)`` stops taking gradients; a new job can begin when the server is not ``busy``.

    To replace a worker while the others continue:

    1. ``disconnect`` its queue pair, and ``exclude`` it;
    2. wait for its bit in ``drained``;
    3. write :func:`vacated` to the start of its region;
    4. ``connect``, then ``readmit``.
    """

    def __init__(self, config: RdmaConfig, *, base: int = 0):
        super().__init__(config, param_server_registers(config), param_server_constants(config), base=base)
        self._mtu: int | None = None  # path MTU of all queue pairs

    def configure(self, own: Endpoint, *, timeout: int = TIMEOUT) -> Batch:
        """Configure the NIC; queue pairs that are connected later may have another path MTU."""
        self._mtu = None
        return super().configure(own, timeout=timeout)

    def connect(self, index: int, connection: Connection, peer: Endpoint) -> Batch:
        """Connect a queue pair. Raises ValueError unless all queue pairs have the same path MTU.

        A retransmission must be cut into packets like the first transmission, or it would need other words of
        the stream.
        """
        if self._mtu not in (None, connection.mtu):
            raise ValueError(f"mtu must be {self._mtu}, as of the other queue pairs, not {connection.mtu}")
        self._mtu = connection.mtu
        return super().connect(index, connection, peer)

    def set_job(
        self,
        layout: ServerLayout,
        step: np.float32,
        *,
        barrier: bool = False,
        broadcast: bool = False,
        scan: bool = False,
    ) -> Batch:
        """Set sizes and addresses of the job, and the step α/N.

        - ``barrier``: Sync-DSGD.
        - ``broadcast``: rows go to all workers.
        - ``scan``: rows are pushed after a scan, not after every gradient.

        Raises ValueError for sizes that the node does not support, and if ``barrier`` is combined with several
        slots, ``broadcast`` or ``scan``.
        """
        job, config = layout.config, self.config
        if barrier and job.slots != 1:
            raise ValueError(f"slots must be 1 with a barrier, not {job.slots}")
        if barrier and broadcast:
            raise ValueError("broadcast must be false with a barrier, whose rows go to all workers")
        if barrier and scan:
            raise ValueError("scan must be false with a barrier, which waits for the gradients of all workers")
        if job.workers > config.queue_pairs:
            raise ValueError(
                f"workers must be at most {config.queue_pairs}, a queue pair each, not {job.workers}"
            )
        if job.width != config.width:
            raise ValueError(f"width must be {config.width}, not {job.width}")
        if layout.base + layout.size > 1 << config.address_width:
            raise ValueError(
                f"rows and table must end below 2^{config.address_width}, not at {layout.base + layout.size:#x}"
            )
        row, slot = layout.row(0), layout.slot(0, 0)
        pushes = {"barrier": int(barrier), "broadcast": int(broadcast), "scan": int(scan)}
        batch = self.batch().write("sizes", workers=job.workers, slots=job.slots, rows=job.rows, **pushes)
        batch.write("step", int(np.float32(step).view(np.uint32)))
        batch.write("words", (slot.others - slot.base) // job.word_bytes)
        batch.write("gradient_bytes", slot.others - slot.base).write("row_bytes", row.size)
        return batch.write("slot_bytes", slot.size).write("rows_base", row.base)

    def set_worker(self, worker: int, layout: ServerLayout, *, buffers: int, rkey: int) -> Batch:
        """Set a worker whose model buffers are at ``buffers`` in its memory, in the region with that key."""
        self._check_index(worker)
        batch = self.batch().write("worker", worker).write("worker_table", layout.slot(worker, 0).base)
        return batch.write("worker_buffers", buffers).write("worker_key", rkey).write("control", set_worker=1)

    def exclude(self, worker: int) -> Batch:
        """Exclude a worker from the job. The server does this itself when a push to the worker fails."""
        self._check_index(worker)
        return self.batch().write("worker", worker).write("control", exclude=1)

    def readmit(self, worker: int, *, buffers: int, rkey: int) -> Batch:
        """Readmit a drained worker whose model buffers are at ``buffers`` in the region with that key.

        The command is complete when the field ``setting`` of ``status`` is 0 and ``refused`` is NONE.
        """
        self._check_index(worker)
        batch = self.batch().write("worker", worker)
        batch.write("worker_buffers", buffers).write("worker_key", rkey)
        return batch.write("control", readmit=1)

    def start(self) -> Batch:
        """Begin the job with version 0 of w."""
        return self.batch().write("control", start=1).write("run", 1)

    def run(self, enable: bool) -> Batch:
        """Take gradients (True), or take no more (False)."""
        return self.batch().write("run", int(enable))

    def status(self) -> Batch:
        """Read the server's progress; :meth:`status_of` decodes it."""
        batch = self.batch().read("status").read("w_version").read("stalest")
        batch.read("staleness", index=0).read("staleness", index=1)
        for name in "gone", "drained":
            for index in range(self.registers[name].count):
                batch.read(name, index=index)
        return batch

    @staticmethod
    def status_of(values: Sequence[Value]) -> ServerStatus:
        """Decode the values that the batch of :meth:`status` read."""
        status, *numbers = values
        assert isinstance(status, dict)
        version, stalest, low, high, *flags = (int(number) for number in numbers)  # type: ignore[arg-type]
        words = len(flags) // 2  # of each of the registers gone and drained, which have a bit per worker
        return ServerStatus(
            busy=bool(status["busy"]),
            exhausted=bool(status["exhausted"]),
            version=version,
            staleness=low | high << 32,
            stalest=stalest,
            gone=_set_bits(flags[:words]),
            refused=Refusal(status["refused"]),
            drained=_set_bits(flags[words:]),
        )


def vacated(layout: ServerLayout, worker: int, *, lgvnum: int, version: int) -> bytes:
    """Return the content of a worker's region at the server before its replacement is admitted.

    - ``version``: register ``w_version``, read after the worker was drained.
    - ``lgvnum``: the worker's LGVnum in a row of that version or a later one.

    All slots are zeros, except the trailer of the next gradient, which makes that slot a valid gradient of
    zeros.
    The server applies it first and pushes the row that the replacement begins with.
    """
    base, size = layout.region(worker)
    slot = layout.slot(worker, layout.config.slot_of(lgvnum + 1))
    content = bytearray(size)
    for address, value in (slot.others, version - lgvnum), (slot.gvnum, lgvnum + 1):
        content[address - base : address - base + VERSION_BYTES] = value.to_bytes(VERSION_BYTES, "little")
    return bytes(content)


def lgvnum_of(
    memory: bytes | bytearray | npt.NDArray[np.uint8], layout: ServerLayout, worker: int, *, version: int
) -> int | None:
    """Return a worker's LGVnum in a row of ``version`` or later; None until the server has such a row."""

    def word(address: int) -> int:
        return int.from_bytes(memory[address : address + VERSION_BYTES], "little")

    for row in map(layout.row, range(layout.config.rows)):
        if word(row.head_version) == word(row.tail_version) >= version:
            return word(row.lgvnum + worker * VERSION_BYTES)
    return None


def _set_bits(words: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers of the bits that are 1 in consecutive words of 32 bits."""
    flags = sum(word << 32 * n for n, word in enumerate(words))
    return tuple(n for n in range(flags.bit_length()) if flags >> n & 1)
