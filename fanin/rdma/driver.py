"""Host driver of a node of one-sided writes: makes batches of register accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fanin.hdl.rdma.registers import rdma_constants, rdma_registers
from fanin.host.driver import Batch, Value
from fanin.rdma.facts import Ending, RdmaConfig, Write
from fanin.rdma.nic_driver import NicDriver


@dataclass(frozen=True)
class Completion:
    """Completion of a write: index of its queue pair, tag, and result (``ending``)."""

    index: int
    tag: int
    ending: Ending


@dataclass(frozen=True)
class Arrival:
    """A message with immediate data that has been written to memory."""

    index: int
    immediate: int
    length: int


class RdmaDriver(NicDriver):
    """Makes batches of register accesses for a node of ``config``; its registers start at ``base``.

    Post writes only while the status is not ``full``.
    """

    def __init__(self, config: RdmaConfig, *, base: int = 0):
        super().__init__(config, rdma_registers(config), rdma_constants(config), base=base)

    def post(self, index: int, write: Write) -> Batch:
        """Post a write. A refused write is counted in ``refused_posts``; ``post_refusal`` has the cause."""
        self._check_index(index)
        immediate = write.immediate is not None
        batch = self.batch().write("write", write_index=index, with_immediate=immediate, tag=write.tag)
        batch.write("local_address", write.local).write("remote_address", write.remote)
        batch.write("key", write.rkey).write("length", write.length)
        if immediate:
            batch.write("immediate", write.immediate)
        return batch.write("control", post=1)

    def take_completion(self) -> Batch:
        """Read and remove the oldest completion; its field ``completed`` must be 1."""
        return self.batch().read("completion").write("control", take_completion=1)

    @staticmethod
    def completion_of(values: Sequence[Value]) -> Completion:
        """Decode the completion that was read."""
        (word,) = values
        assert isinstance(word, dict)
        return Completion(word["completed_index"], word["completed_tag"], Ending(word["ending"]))

    def take_arrival(self) -> Batch:
        """Read and remove the oldest message with immediate data; ``arrived`` must be 1."""
        batch = self.batch().read("arrival").read("arrived_immediate").read("arrived_length")
        return batch.write("control", take_arrival=1)

    @staticmethod
    def arrival_of(values: Sequence[Value]) -> Arrival:
        """Decode the message that was read."""
        word, immediate, length = values
        assert isinstance(word, dict)
        assert isinstance(immediate, int)
        assert isinstance(length, int)
        return Arrival(word["arrived_index"], immediate, length)
