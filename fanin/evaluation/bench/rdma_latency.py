"""Latency meter of a single NIC of one-sided writes, in Amaranth's simulator."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from amaranth.sim import Simulator

from fanin.hdl.rdma.nic import RdmaNic
from fanin.job import worker_endpoint
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, RdmaConfig
from fanin.sim.rtl.memory import ReadMemory, WriteMemory
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import PATH_MTUS, Opcode, RdmaPacket, decode, encode

MEMORY_LATENCY = 20  # cycles from a burst's address to its first word; excluded from all figures
_PORT = 0xC000
_KEY = 0x1234
_QUIET_CYCLES = 8  # between writes; all effects of a write end in this time
_MAX_WRITE_CYCLES = 2000  # limit of a write
_TIMEOUT = 1 << 20  # cycles; long enough that no packet is retransmitted
_SPACE = 1 << 16  # bytes of the region


@dataclass(frozen=True)
class Move:
    """Write of ``size`` bytes from or to byte ``address`` of the NIC's memory. ``index``: of the queue pair."""

    size: int
    address: int
    index: int = 0


class NicMeter:
    """Latency meter of a NIC between a memory and a MAC that are never busy.

    A testbench posts or sends one write after the other. A background process logs the cycle of each transfer
    by port, and the latency of a write is the difference of two logged cycles.
    """

    def __init__(self, config: RdmaConfig):
        self.config = config
        self._step = config.width // 8
        self._node, self._peer = worker_endpoint(0), replace(worker_endpoint(1), port=_PORT)

    def measure(self, sent: list[Move], received: list[Move]) -> tuple[list[int], list[int]]:
        """Carry out writes sequentially; return the latency of each, in cycles.

        Raises AssertionError unless all bytes are correct.

        - ``sent``: writes by the NIC; from the transfer on ``post`` to the first word on ``mac_tx``, without
          the memory's latency.
        - ``received``: writes to the NIC; from the last word on ``mac_rx`` to ``write.wvalid``.
        """
        self._begin()
        latencies: tuple[list[int], list[int]] = ([], [])

        async def main(ctx: Any) -> None:
            await self._configure(ctx, {move.index for move in (*sent, *received)})
            for psn, move in _with_sequence_numbers(sent):
                latencies[0].append(await self._send(ctx, move, psn))
            for psn, move in _with_sequence_numbers(received):
                latencies[1].append(await self._receive(ctx, move, psn))

        simulator = Simulator(self.nic)
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        for process in (self._watch, self._read.process, self._write.process):
            simulator.add_testbench(process, background=True)
        simulator.run()
        return latencies

    def _begin(self) -> None:
        rng = random.Random(self.config.width)
        self._content = rng.randbytes(_SPACE)
        self.nic = RdmaNic(config=self.config)
        self._read = ReadMemory(self.nic.read, self._word, latency=MEMORY_LATENCY)
        self._write = WriteMemory(self.nic.write)
        self._cycle = 0
        self._transfers: dict[str, list[int]] = {}  # cycle numbers of transfers, by port
        self._frames: list[bytes] = []  # frames on mac_tx

    def _word(self, address: int) -> int:
        return int.from_bytes(self._content[address : address + self._step], "little")

    async def _watch(self, ctx: Any) -> None:
        """Record the cycles of transfers by port, and the frames on ``mac_tx``."""
        nic, frame = self.nic, bytearray()
        ports = {"post": nic.post, "mac_tx": nic.mac_tx, "mac_rx": nic.mac_rx}
        transfers = {name: port.valid & port.ready for name, port in ports.items()}
        transfers |= {"address": nic.read.arvalid & nic.read.arready, "data": nic.read.rvalid}
        transfers |= {"write": nic.write.wvalid}
        self._transfers = {name: [] for name in transfers}
        for port in (nic.mac_tx, nic.completion, nic.arrival):
            ctx.set(port.ready, 1)
        while True:
            _, _, word, *transferred = await ctx.tick().sample(nic.mac_tx.payload, *transfers.values())
            for name, value in zip(transfers, transferred, strict=True):
                if value:
                    self._transfers[name].append(self._cycle)
            if self._transfers["mac_tx"][-1:] == [self._cycle]:
                frame += int(word.data).to_bytes(self._step, "little")[: int(word.keep).bit_count()]
                if word.last:
                    self._frames.append(bytes(frame))
                    frame.clear()
            self._cycle += 1

    async def _put(self, ctx: Any, port: Any, payload: dict[str, Any]) -> None:
        """Make one transfer, and clear ``valid`` after it."""
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        ready = False
        while not ready:
            _, _, ready = await ctx.tick().sample(port.ready)
        ctx.set(port.valid, 0)

    async def _configure(self, ctx: Any, indexes: set[int]) -> None:
        """Set the NIC's address, a region, and the connection of each queue pair in ``indexes``."""
        nic = self.nic
        ctx.set(nic.own, {"mac": self._node.mac, "ip": self._node.ip})
        ctx.set(nic.timeout, _TIMEOUT)
        all_queue_pairs = (1 << self.config.queue_pairs) - 1
        region = {
            "index": 0,
            "enable": 1,
            "rkey": _KEY,
            "base": 0,
            "limit": _SPACE,
            "queue_pairs": all_queue_pairs,
        }
        await self._put(ctx, nic.region, region)
        for index in sorted(indexes):
            connection = Connection(FIRST_QUEUE_PAIR + index)
            peer = {"queue_pair": connection.peer, "mac": self._peer.mac, "ip": self._peer.ip, "port": _PORT}
            settings = {
                "enable": 1,
                "peer": peer,
                "mtu": PATH_MTUS.index(connection.mtu),
                "window": connection.window.bit_length() - 1,
                "retries": connection.retries,
                "send_psn": connection.send_psn,
                "receive_psn": connection.receive_psn,
            }
            await self._put(ctx, nic.connect, {"index": index, "settings": settings})
        await ctx.tick().repeat(_QUIET_CYCLES)

    async def _send(self, ctx: Any, move: Move, psn: int) -> int:
        """Post a write and acknowledge it; return its latency in cycles. ``psn``: its packet's number."""
        nic, transfers = self.nic, self._clear_logs()
        post = {"index": move.index, "tag": 1, "local": move.address, "remote": 0, "rkey": _KEY}
        await self._put(ctx, nic.post, post | {"length": move.size})
        await self._wait_until(ctx, lambda: bool(self._frames))
        (packet,) = map(decode, self._frames)
        assert packet is not None
        assert packet.payload == self._content[move.address : move.address + move.size]
        words = transfers["mac_tx"]
        assert words == list(range(words[0], words[0] + len(words))), "a frame pauses inside"
        memory_cycles = transfers["data"][0] - transfers["address"][0]
        cycles = words[0] - transfers["post"][0] - memory_cycles
        answer = RdmaPacket(Opcode.ACKNOWLEDGE, FIRST_QUEUE_PAIR + move.index, psn, msn=psn + 1)
        await self._frame(ctx, answer)
        return cycles

    async def _receive(self, ctx: Any, move: Move, psn: int) -> int:
        """Send a write to the NIC; return its latency in cycles. ``psn``: its packet's number."""
        transfers = self._clear_logs()
        payload = random.Random(psn).randbytes(move.size)
        queue_pair, write = FIRST_QUEUE_PAIR + move.index, (move.address, _KEY, move.size)
        packet = RdmaPacket(Opcode.WRITE_ONLY, queue_pair, psn, True, *write, payload=payload)
        await self._frame(ctx, packet)
        content = self._write.content

        def is_written() -> bool:  # the ACK is earlier: it confirms the packet, not the write to memory
            return bytes(content.get(move.address + n, 0) for n in range(move.size)) == payload

        await self._wait_until(ctx, lambda: bool(self._frames) and is_written())
        return transfers["write"][0] - transfers["mac_rx"][-1]

    async def _frame(self, ctx: Any, packet: RdmaPacket) -> None:
        """Send a packet to ``mac_rx`` word by word, and wait for ``_QUIET_CYCLES`` cycles."""
        destination = Endpoint(self._node.mac, self._node.ip)
        frame = encode(packet, source=self._peer, destination=destination)
        for offset in range(0, len(frame), self._step):
            part = frame[offset : offset + self._step]
            beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1}
            await self._put(ctx, self.nic.mac_rx, beat | {"last": offset + self._step >= len(frame)})
        await ctx.tick().repeat(_QUIET_CYCLES)

    async def _wait_until(self, ctx: Any, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, and then for ``_QUIET_CYCLES`` cycles."""
        for _ in range(_MAX_WRITE_CYCLES):
            if condition():
                break
            await ctx.tick()
        assert condition(), "not done"
        await ctx.tick().repeat(_QUIET_CYCLES)

    def _clear_logs(self) -> dict[str, list[int]]:
        """Clear the logs of transfers and frames; return the log of transfers, by port."""
        for log in self._transfers.values():
            log.clear()
        self._frames.clear()
        return self._transfers


def _with_sequence_numbers(moves: list[Move]) -> list[tuple[int, Move]]:
    """Return each move with its sequence number in its queue pair."""
    numbers = [[other.index for other in moves[:n]].count(move.index) for n, move in enumerate(moves)]
    return list(zip(numbers, moves, strict=True))
