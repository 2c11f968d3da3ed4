"""Worker of GLM training in NumPy, at a port of the switch; its packets are those of a node."""

from __future__ import annotations

from collections import deque

import numpy as np
from frames import Aggregation, mac, raw_frame
from scapy.layers.l2 import Ether

from fanin import fixed
from fanin.fixed import LearningRate, Loss
from fanin.glm.facts import MICRO_BATCH, TrainShape
from fanin.glm.golden.layout import engine_columns
from fanin.glm.golden.train import forward, gradient
from fanin.golden.aggregation import WorkerEndpoint
from fanin.job import SWITCH, Job
from fanin.wire.aggregation import AggPacket


class Worker:
    """Worker ``number`` of a model-parallel training by ``job``: sends PAs of its columns, learns from FAs.

    ``model`` is the worker's part of the weights. The worker has no clock and so no timeouts: no frame may be
    lost between the worker and the switch.
    """

    def __init__(
        self,
        shape: TrainShape,
        job: Job,
        number: int,
        features: np.ndarray,
        labels: np.ndarray,
        *,
        loss: Loss,
        rate: LearningRate,
    ):
        member = job.members[number]
        columns = engine_columns(shape, number, engine=0)
        self.model = np.zeros(columns.stop - columns.start, np.int64)
        self._shape, self._features, self._labels = shape, features[:, columns], labels
        self._loss, self._rate = loss, rate
        self._endpoint = WorkerEndpoint(job=job.id, base=job.base, slots=job.slots, member=member.bitmap)
        self._ether = Ether(dst=mac(SWITCH.mac), src=mac(member.endpoint.mac))
        self._learned = 0  # micro-batches
        self._activations: deque[tuple[int, ...]] = deque()  # PAs that have no slot yet
        self._forward()

    def receive(self, frame: bytes) -> list[bytes]:
        """Take a RESULT or CONFIRM. Return the frames that can now be sent to the switch."""
        fields = Ether(frame)[Aggregation].fields
        received = self._endpoint.receive(AggPacket(**fields | {"values": tuple(fields["values"])}))
        for activations in received.delivered:
            self._backward(np.array(activations))
        return [self._frame(packet) for packet in received.packets] + self.send()

    def send(self) -> list[bytes]:
        """Return frames with the PAs that have a slot."""
        packets = []
        while self._activations and self._endpoint.can_submit():
            packets += self._endpoint.submit(self._activations.popleft())
        return [self._frame(packet) for packet in packets]

    def _forward(self) -> None:
        """Compute the PAs of the next mini-batch, all with the same model."""
        shape = self._shape
        end = min(self._learned + shape.micro_batches, shape.micro_batches_per_epoch)
        for number in range(self._learned, end):
            pa = forward(self._features[_samples(number)], self.model, shape.precision)
            clamped = fixed.clamp(pa, fixed.clamp_bits(shape.workers))
            self._activations.append(tuple(clamped.tolist()))

    def _backward(self, fa: np.ndarray) -> None:
        """Learn from the FAs of the next micro-batch; a mini-batch's last FAs start the next mini-batch."""
        shape, samples = self._shape, _samples(self._learned)
        df = fixed.df(fa, self._labels[samples], self._loss, shape.node.frac)
        scale = fixed.scale(df, *self._rate)
        self.model = fixed.saturate32(self.model - gradient(self._features[samples], scale, shape.precision))
        self._learned += 1
        if self._learned % shape.micro_batches == 0:
            self._forward()

    def _frame(self, packet: AggPacket) -> bytes:
        return raw_frame(self._ether / Aggregation(**vars(packet) | {"values": list(packet.values)}))


def _samples(micro_batch: int) -> slice:
    return slice(micro_batch * MICRO_BATCH, (micro_batch + 1) * MICRO_BATCH)
