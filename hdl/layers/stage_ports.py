"""Streams of a network's stages, by their components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Const

from fanin.cnn.facts import Consumer, Network
from fanin.hdl.layers.registers import Direction, StageStream
from fanin.hdl.layers.store import Store, streams


@dataclass(frozen=True)
class StagePorts:
    """Streams of each stage: those of its component in ``layers``, by index, or the store's at both ends.

    ``layers`` has a NetworkEnd for each end of a connection.
    """

    network: Network
    layers: dict[int, Any]
    store: Store

    def outputs(self, stage: int) -> Any:
        """Return the stream of a stage's output map."""
        if stage in self.layers:
            return self.layers[stage].outputs
        network = self.network
        return streams(self.store.readers)[(network.images, network.labels).index(stage)]

    def features(self, consumer: Consumer) -> Any:
        """Return the port at which a consumer takes a feature map."""
        if consumer.stage in self.layers:
            return self.layers[consumer.stage].features[consumer.port]
        return streams(self.store.writers)[0]

    def gradients(self, stage: int) -> Any:
        """Return the port at which a stage takes gradients of its output; None if nothing learns from them."""
        return self._member(stage, "gradients")

    def input_gradients(self, consumer: Consumer) -> Any:
        """Return the stream of gradients that a consumer sends back; None if it sends none."""
        ports = self._member(consumer.stage, "input_gradients") or []
        return ports[consumer.port] if consumer.port < len(ports) else None

    def stream(self, stage_stream: StageStream) -> Any:
        """Return the port of a stream that leaves a stage."""
        if stage_stream.direction is Direction.FORWARD:
            return self.outputs(stage_stream.stage)
        return self.input_gradients(Consumer(stage_stream.stage, stage_stream.port))

    def source(self, stage_stream: StageStream) -> tuple[Any, Any]:
        """Return valid and ready of the stage's input from which a leaving stream is computed.

        With several inputs, the stage counts as always ready, as it waits for the missing input. Without a
        visible input, the stage never waits.
        """
        if stage_stream.direction is Direction.FORWARD:
            ports = self._member(stage_stream.stage, "features") or []
        else:
            ports = [port for port in [self.gradients(stage_stream.stage)] if port is not None]
        if len(ports) == 1:
            return ports[0].valid, ports[0].ready
        return Cat(port.valid for port in ports).all(), Const(len(ports) > 1)

    def _member(self, stage: int, name: str) -> Any:
        return getattr(self.layers.get(stage), name, None)
