"""Peer of a ring node's reliable link: ``fanin.golden.link`` with scapy frames."""

from __future__ import annotations

import random

import cocotb
import numpy as np
from bench import Bench
from cocotb.triggers import ClockCycles, Event
from frames import Ring, mac
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from fanin.golden.link import Answer, Receiver, Sender
from fanin.ring.facts import RingConfig
from fanin.wire.ethernet import Encap
from fanin.wire.fields import pack_fields, unpack_fields
from fanin.wire.link import ARRIVED, LinkKind
from fanin.wire.ring import RING_LINK, VERSION

REPLAY_FRAMES = 1024  # enough that ``send`` never waits


class Link:
    """Reliable link to a node of ``config`` in a ring of two: words in order and exactly once, despite losses.

    ``own``, ``peer``: MAC addresses.
    ``rank``: own place in the ring.
    ``count``: values of the operation.
    ``loss``: probability that a frame is lost, in either direction.
    ``timeout``: cycles.
    """

    def __init__(
        self,
        bench: Bench,
        config: RingConfig,
        *,
        own: int,
        peer: int,
        rank: int,
        job: int,
        count: int,
        timeout: int,
        loss: float = 0.0,
    ):
        self.lost = 0
        self._config = config
        self._ether = Ether(dst=mac(peer), src=mac(own))
        self._header = {"version": VERSION, "job": job, "nodes": 2, "rank": rank, "parameters": config.lanes}
        self._fields: list[dict[str, int]] = []  # of each frame sent, by its sequence number
        self._count = count
        self._loss = loss
        self._sender = Sender(REPLAY_FRAMES, retries=100)
        self._receiver = Receiver(config.buffer_frames, config.ack_frames)
        self._arrived = Event()
        self._source, self._sink = bench.source("mac_rx"), bench.sink("mac_tx")
        cocotb.start_soon(self._take_frames())
        cocotb.start_soon(self._keep_time(bench, timeout))

    def send(self, values: np.ndarray, **fields: int) -> None:
        """Send a frame of whole words; ``fields`` are ``slice`` and ``complete`` of its header."""
        self._fields.append(fields)
        assert self._sender.offer(values.astype("<f4").tobytes())
        self._send_due()

    async def receive(self) -> np.ndarray:
        """Return the values of the next frame."""
        while not self._receiver.frames:
            self._arrived.clear()
            await self._arrived.wait()
        payload = self._receiver.consume()
        self._send_due()
        return np.frombuffer(payload, "<f4")

    async def _take_frames(self) -> None:
        while True:
            frame = Ether(bytes(await self._sink.recv()))
            if self._loses():
                continue
            header = frame[Ring]
            if header.kind == LinkKind.DATA:
                payload = header[Raw].load[: header.length * self._config.width // 8]
                self._receiver.receive(header.sequence, payload)
                while self._receiver.advance():
                    self._arrived.set()
            elif header.kind == LinkKind.PROBE:
                self._receiver.probe(header.sequence)
            else:
                arrived = unpack_fields(ARRIVED, header[Raw].load)["arrived"]
                self._sender.answer(Answer(LinkKind(header.kind), header.sequence, header.count, arrived))
            self._send_due()

    async def _keep_time(self, bench: Bench, timeout: int) -> None:
        while True:
            await ClockCycles(bench.dut.clk, timeout)
            self._sender.timeout()
            self._receiver.delay()
            for sequence in self._sender.missing():
                self._put_data(*self._sender.send_again(sequence))
            self._send_due()

    def _send_due(self) -> None:
        """Send all frames that the golden sender and receiver may send now."""
        if (sequence := self._sender.probe()) is not None:
            self._put(kind=LinkKind.PROBE, sequence=sequence)
        while answer := self._receiver.answer():
            arrived = pack_fields(ARRIVED, {"arrived": answer.arrived})
            self._put(arrived, kind=answer.kind, sequence=answer.sequence, count=answer.count)
        while sent := self._sender.send():
            self._put_data(*sent)

    def _put_data(self, sequence: int, payload: bytes) -> None:
        words = len(payload) * 8 // self._config.width
        fields = self._fields[sequence] | {"count": self._count, "length": words}
        self._put(payload, kind=LinkKind.DATA, sequence=sequence, **fields)

    def _put(self, payload: bytes = b"", **fields: int) -> None:
        beat_bytes = self._config.width // 8
        size = RING_LINK.frame_bytes(fields["kind"], len(payload), encap=Encap.L2, beat_bytes=beat_bytes)
        frame = self._ether / Ring(**self._header, **fields) / Raw(payload)
        if not self._loses():
            self._source.send_nowait(bytes(frame).ljust(size, b"\0"))

    def _loses(self) -> bool:
        lost = random.random() < self._loss
        self.lost += lost
        return lost
