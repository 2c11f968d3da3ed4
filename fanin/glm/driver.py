"""Host driver of a GLM node: turns training jobs into batches of register accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin import fixed
from fanin.fixed import NO_DECAY, Decay, LearningRate, Loss
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden.layout import place_of
from fanin.hdl.glm.node_registers import (
    ROUND_TRIPS,
    Failure,
    model_address,
    node_constants,
    node_registers,
)
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.wire.ethernet import Endpoint
from fanin.wire.link import FLOOR_CYCLES


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """The aggregation job as one worker sees it.

    - ``id``: number of the job.
    - ``base``: its first slot at the switch.
    - ``slots``: number of its slots, a power of two.
    - ``member``: one-hot bit of the worker at its switch.
    - ``worker``: number of the worker in the job; None: the place of its bit, as at a job's only switch.
    - ``own``, ``switch``: addresses of the two ends.
    - ``timeout``: cycles until an unanswered packet is sent again; the maximum if ``adaptive``.
    - ``adaptive``: timeouts follow the measured round trips.
    - ``floor``: minimum number of cycles from the mean round trip to the timeout if ``adaptive``.
    - ``retries``: retransmissions of a packet before the node fails.
    """

    id: int
    base: int
    slots: int
    member: int
    own: Endpoint
    switch: Endpoint
    timeout: int
    adaptive: bool = False
    floor: int = FLOOR_CYCLES
    retries: int = 1000
    worker: int | None = None

    @property
    def number(self) -> int:
        """Number of the worker in the job."""
        return self.member.bit_length() - 1 if self.worker is None else self.worker


class NodeList(NamedTuple):
    """List of a sparse engine: byte address, and its entries and sample words of an epoch."""

    address: int
    entries: int
    words: int


@dataclass(frozen=True, kw_only=True)
class NodeMemories:
    """Byte addresses that a node reads from: ``samples``, two ports per engine, and ``labels``."""

    samples: Sequence[int]
    labels: int
    lists: Sequence[NodeList] = ()  #: of a sparse node, one per engine


@dataclass(frozen=True)
class NodeStatus:
    """State of a node. ``cause`` is NONE unless ``failed``."""

    busy: bool
    idle: bool
    failed: bool
    cause: Failure


class NodeDriver(BaseDriver):
    """Makes batches of register accesses for a node of ``config``; its registers start at address ``base``."""

    def __init__(self, config: GlmConfig, *, base: int = 0):
        super().__init__(node_registers(config), node_constants(config), base=base)
        self.config = config
        self._counters += ROUND_TRIPS  # registers that are read with the counters

    def configure(
        self,
        shape: TrainShape,
        *,
        loss: Loss,
        rate: LearningRate,
        epochs: int,
        job: NodeJob,
        memories: NodeMemories,
        decay: Decay = NO_DECAY,
    ) -> Batch:
        """Return the writes that prepare a run; they also reset the transport for the job.

        Raises ValueError if ``decay`` is given for a node that was elaborated without ``l2``.
        """
        batch = self.batch().write("control", reset_transport=1)
        batch.write(
            "training",
            planes=shape.precision,
            loss=loss,
            clamp_bits=fixed.clamp_bits(shape.workers),
            **({"serial": int(shape.vanilla)} if self.config.vanilla else {}),
        )
        batch.write("rate", mantissa=rate.mantissa, shift=rate.shift)
        self._write_decay(batch, decay, shape, job)
        batch.write("job", job_id=job.id, log2_slots=job.slots.bit_length() - 1, slot_base=job.base)
        batch.write("timers", adaptive=int(job.adaptive), floor=job.floor)
        for name, value in {
            "chunks": shape.chunks,
            "mini_batch": shape.micro_batches,
            "epoch": shape.micro_batches_per_epoch,
            "epochs": epochs,
            "member": job.member,
            "timeout": job.timeout,
            "retries": job.retries,
            "own_mac": job.own.mac,
            "own_ip": job.own.ip,
            "switch_mac": job.switch.mac,
            "switch_ip": job.switch.ip,
            "udp_port": job.own.port,
            "label_address": memories.labels,
        }.items():
            batch.write(name, value)
        for port, address in enumerate(memories.samples):
            batch.write("sample_address", address, index=port)
        for engine, each in enumerate(memories.lists):
            batch.write("list_address", each.address, index=engine)
            batch.write("list_entries", each.entries, index=engine)
            batch.write("sample_words", each.words, index=engine)
        return batch

    def _write_decay(self, batch: Batch, decay: Decay, shape: TrainShape, job: NodeJob) -> None:
        """Write the shift of the decay, and the place of the spared weight (the bias) if this node holds it."""
        if not self.config.l2:
            if decay.shift:
                raise ValueError("decay must be none for a node that was made without l2")
            return
        position = None if decay.spared is None else place_of(decay.spared, shape, job.number)
        engine, chunk, lane = position or (0, 0, 0)
        batch.write(
            "decay",
            decay_shift=decay.shift,
            spared=int(position is not None),
            spared_lane=lane,
            spared_chunk=chunk,
            spared_engine=engine,
        )

    def status(self) -> Batch:
        """Read the status register; :meth:`status_of` decodes the value."""
        return self.batch().read("status")

    @staticmethod
    def status_of(values: Sequence[Value]) -> NodeStatus:
        """Decode the value that the batch of :meth:`status` read."""
        (fields,) = values
        assert isinstance(fields, dict)
        cause = Failure(fields["cause"]) if fields["failed"] else Failure.NONE
        return NodeStatus(bool(fields["busy"]), bool(fields["idle"]), bool(fields["failed"]), cause)

    def read_model(self, chunks: int) -> Batch:
        """Read the first ``chunks`` chunks of each engine; :meth:`model_of` decodes the values."""
        batch = self.batch()
        for engine in range(self.config.engines):
            batch.write("model_address", model_address(engine, 0))
            for _ in range(chunks * self.config.lanes):
                batch.read("model_data")
        return batch

    def write_model(self, weights: npt.NDArray[np.int32]) -> Batch:
        """Write weights, [engine, chunk, lane]; the node must not be busy."""
        batch = self.batch()
        for engine, part in enumerate(weights):
            batch.write("model_address", model_address(engine, 0))
            for weight in part.ravel().view(np.uint32).tolist():
                batch.write("model_data", weight)
        return batch

    def model_of(self, values: Sequence[Value]) -> npt.NDArray[np.int32]:
        """Decode the values that :meth:`read_model` read: weights, [engine, chunk, lane]."""
        weights = np.array(values, dtype=np.uint32).view(np.int32)
        return weights.reshape(self.config.engines, -1, self.config.lanes)
