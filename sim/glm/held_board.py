"""Control of one board in a training: memories and registers of its node, epochs, results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.base.errors import ToolFailed
from fanin.fixed import NO_DECAY, Decay, LearningRate, Loss
from fanin.glm.driver import NodeDriver, NodeJob, NodeList, NodeMemories, NodeStatus
from fanin.glm.facts import TrainShape
from fanin.glm.golden.quantise import Samples
from fanin.hdl.boards.memory_map import BOARD, LABELS, list_memory, sample_memory
from fanin.hdl.boards.registers import board_registers
from fanin.hdl.bus.register_map import WORD_BITS
from fanin.hdl.glm.node_registers import Failure
from fanin.host.board import BoardClient, BoardError
from fanin.host.causes import explain
from fanin.host.driver import Batch
from fanin.sim.glm.cosim import Int32
from fanin.sim.glm.memories import port_contents
from fanin.wire.ethernet import Endpoint

POLL_S = 0.02


class NodeFailed(ToolFailed):
    """A board's node has stopped its run; ``cause`` is the node's cause."""

    def __init__(self, host: str, cause: Failure):
        super().__init__(f"board {host} stopped: {explain(cause)}")
        self.cause = cause


@dataclass(frozen=True)
class HeldBoard:
    """A board that this host has leased for a training.

    - ``client``: access to the board's registers and memories.
    - ``driver``: driver of its GLM node.
    - ``own``, ``host``: addresses of board and host on their network.
    """

    client: BoardClient
    driver: NodeDriver
    own: Endpoint
    host: Endpoint

    @classmethod
    def identify(cls, client: BoardClient, driver: NodeDriver) -> HeldBoard:
        """Check the node's identity, and read the addresses of board and host. Raises BoardError.

        The transport is reset: an earlier run may have had the same job, and its packets must not be sent.
        """
        values = client.run(driver.identify())
        try:
            driver.check_identity(values)
        except ValueError as error:
            raise BoardError(f"board {client.host}: {error}") from None
        client.run(driver.command("reset_transport"))
        names = ("own_mac", "own_ip", "holder_mac_low", "holder_mac_high", "holder")
        batch = Batch(board_registers(), base=BOARD)
        for name in names:
            batch.read(name)
        own_mac, own_ip, low, high, host_ip = (int(value) for value in client.run(batch))  # type: ignore[arg-type]
        return cls(client, driver, Endpoint(own_mac, own_ip), Endpoint(high << WORD_BITS | low, host_ip))

    def reset_transport(self) -> None:
        """Reset the board's transport, so that it sends nothing to a closed host; ignore a lost board."""
        with contextlib.suppress(BoardError):
            self.client.run(self.driver.command("reset_transport"))

    def load(self, shape: TrainShape, features: Samples, labels: Int32, worker: int) -> None:
        """Load a worker's samples, labels and lists into the board's memories, and verify their checksums."""
        node = shape.node
        addresses = [sample_memory(port) for port in range(node.sample_ports)] + [LABELS]
        if node.sparse:
            addresses += [list_memory(engine) for engine in range(node.engines)]
        for address, part in zip(addresses, port_contents(shape, features, labels, worker), strict=True):
            self.client.load(address, _words(part))

    def configure(
        self,
        shape: TrainShape,
        *,
        loss: Loss,
        rate: LearningRate,
        epochs: int,
        job: NodeJob,
        decay: Decay = NO_DECAY,
        lists: Sequence[NodeList] = (),
    ) -> None:
        """Configure a run of ``epochs`` from model 0, and clear the model; does not wait for the clearing.

        ``lists``: of a sparse node, as ``node_lists`` returns them.
        """
        memories = NodeMemories(samples=[0] * self.driver.config.sample_ports, labels=0, lists=lists)
        self.client.run(
            self.driver.configure(
                shape, loss=loss, rate=rate, epochs=epochs, decay=decay, job=job, memories=memories
            )
        )
        self.client.run(self.driver.command("clear_model", "clear_counters"))

    def set_model(self, weights: Int32) -> None:
        """Write the weights, [engine, chunk, lane], of a node that is not busy."""
        self.client.run(self.driver.write_model(weights))

    def start(self) -> None:
        """Start the configured epochs."""
        self.client.run(self.driver.command("start"))

    def wait(
        self, subject: str, is_done: Callable[[NodeStatus], bool], *, timeout: float, check: Callable[[], None]
    ) -> None:
        """Poll the node's status until ``is_done`` is true of it.

        ``check`` is called at each poll, and may raise. Raises NodeFailed if the run has failed, and ToolFailed
        with ``subject`` after ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        while True:
            status = self.driver.status_of(self.client.run(self.driver.status()))
            if status.failed:
                raise NodeFailed(self.client.host, status.cause)
            check()
            if is_done(status):
                return
            if time.monotonic() > end:
                raise ToolFailed(f"board {self.client.host}: {subject} after {timeout:g} s")
            time.sleep(POLL_S)

    def counters(self) -> dict[str, int]:
        """Return the node's counters."""
        return self.driver.counters_of(self.client.run(self.driver.counters()))

    def model(self, shape: TrainShape) -> Int32:
        """Return the weights, [engine, chunk, lane]."""
        return self.driver.model_of(self.client.run(self.driver.read_model(shape.chunks)))


def _words(part: npt.NDArray[Any]) -> list[int]:
    """Return the bytes of a memory as words of the bus; the last one is padded."""
    data = np.ascontiguousarray(part).view(np.uint8).ravel()
    padded = np.pad(data, (0, -len(data) % 4))
    words: list[int] = padded.view("<u4").tolist()
    return words
