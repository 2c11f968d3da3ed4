"""Latency of the NIC of one-sided writes alone, in Amaranth's simulator."""

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
_QUIET = 8  # cycles between writes; all effects of a write end in this time
_PATIENCE = 2000  # limit of a write, in cycles
_TIMEOUT = 1 << 20  # cycles; long enough that nothing is sent again
_SPACE = 1 << 16  # bytes of the region


@dataclass(frozen=True)
class Move:
    """Write of ``size`` bytes from or to byte ``address``, on the queue pair at ``index``."""

    size: int
    address: int
    index: int = 0


class NicMeter:
    """Latency meter of a NIC between a memory and a MAC that are never busy."""

    def __init__(self, config: RdmaConfig):
        self.config = config
        self._step = config.width // 8
        self._own, self._peer = worker_endpoint(0), replace(worker_endpoint(1), port=_PORT)

    def measure(self, sent: list[Move], received: list[Move]) -> tuple[list[int], list[int]]:
        """Carry out writes one after the other; return the latency of each, in cycles.

        Raises AssertionError unless all bytes are correct.

        - ``sent``: writes by the NIC; from the transfer on ``post`` to the first word on ``mac_tx``, without
          the memory's latency.
        - ``received``: writes to the NIC; from the last word on ``mac_rx`` to ``write.wvalid``.
        """
        self._begin()
        result: tuple[list[int], list[int]] = ([], [])

        async def main(ctx: Any) -> None:
            await self._configure(ctx, {move.index for move in (*sent, *received)})
            for psn, move in _numbered(sent):
                result[0].append(await self._send(ctx, move, psn))
            for psn, move in _numbered(received):
                result[1].append(await self._receive(ctx, move, psn))

        simulator = Simulator(self.nic)
        simulator.add_clock(1e-6)
        simulator.add_testbench(main)
        for process in (self._watch, self._read.process, self._write.process):
            simulator.add_testbench(process, background=True)
        simulator.run()
        return result

    def _begin(self) -> None:
        rng = random.Random(self.config.width)
        self._content = rng.randbytes(_SPACE)
        self.nic = RdmaNic(config=self.config)
        self._read = ReadMemory(self.nic.read, self._word, latency=MEMORY_LATENCY)
        self._write = WriteMemory(self.nic.write)
        self._cycle = 0
        self._seen: dict[str, list[int]] = {}  # cycle numbers of transfers, by port
        self._frames: list[bytes] = []  # on mac_tx

    def _word(self, address: int) -> int:
        return int.from_bytes(self._content[address : address + self._step], "little")

    async def _watch(self, ctx: Any) -> None:
        """Record the cycles of transfers by port, and the frames on ``mac_tx``."""
        nic, frame = self.nic, bytearray()
        ports = {"post": nic.post, "mac_tx": nic.mac_tx, "mac_rx": nic.mac_rx}
        moves = {name: port.valid & port.ready for name, port in ports.items()}
        moves |= {"address": nic.read.arvalid & nic.read.arready, "data": nic.read.rvalid}
        moves |= {"write": nic.write.wvalid}
        self._seen = {name: [] for name in moves}
        for port in (nic.mac_tx, nic.completion, nic.arrival):
            ctx.set(port.ready, 1)
        while True:
            _, _, out, *moved = await ctx.tick().sample(nic.mac_tx.payload, *moves.values())
            for name, value in zip(moves, moved, strict=True):
                if value:
                    self._seen[name].append(self._cycle)
            if self._seen["mac_tx"][-1:] == [self._cycle]:
                frame += int(out.data).to_bytes(self._step, "little")[: int(out.keep).bit_count()]
                if out.last:
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
        nic = self.nic
        ctx.set(nic.own, {"mac": self._own.mac, "ip": self._own.ip})
        ctx.set(nic.timeout, _TIMEOUT)
        every = (1 << self.config.queue_pairs) - 1
        region = {"index": 0, "enable": 1, "rkey": _KEY, "base": 0, "limit": _SPACE, "queue_pairs": every}
        await self._put(ctx, nic.region, region)
        for index in sorted(indexes):
            known = Connection(FIRST_QUEUE_PAIR + index)
            peer = {"queue_pair": known.peer, "mac": self._peer.mac, "ip": self._peer.ip, "port": _PORT}
            settings = {
                "enable": 1,
                "peer": peer,
                "mtu": PATH_MTUS.index(known.mtu),
                "window": known.window.bit_length() - 1,
                "retries": known.retries,
                "send_psn": known.send_psn,
                "receive_psn": known.receive_psn,
            }
            await self._put(ctx, nic.connect, {"index": index, "settings": settings})
        await ctx.tick().repeat(_QUIET)

    async def _send(self, ctx: Any, move: Move, psn: int) -> int:
        nic, seen = self.nic, self._forget()
        post = {"index": move.index, "tag": 1, "local": move.address, "remote": 0, "rkey": _KEY}
        await self._put(ctx, nic.post, post | {"length": move.size})
        await self._until(ctx, lambda: bool(self._frames))
        (packet,) = map(decode, self._frames)
        assert packet is not None
        assert packet.payload == self._content[move.address : move.address + move.size]
        words = seen["mac_tx"]
        assert words == list(range(words[0], words[0] + len(words))), "a frame pauses inside"
        memory = seen["data"][0] - seen["address"][0]
        cycles = words[0] - seen["post"][0] - memory
        answer = RdmaPacket(Opcode.ACKNOWLEDGE, FIRST_QUEUE_PAIR + move.index, psn, msn=psn + 1)
        await self._frame(ctx, answer)
        return cycles

    async def _receive(self, ctx: Any, move: Move, psn: int) -> int:
        seen = self._forget()
        payload = random.Random(psn).randbytes(move.size)
        packet = RdmaPacket(
            Opcode.WRITE_ONLY, FIRST_QUEUE_PAIR + move.index, psn, True, move.address, _KEY, move.size,
            payload=payload,
        )  # fmt: skip
        await self._frame(ctx, packet)
        content = self._write.content

        def written() -> bool:  # the ACK is earlier: it confirms the packet, not the write to memory
            return bytes(content.get(move.address + n, 0) for n in range(move.size)) == payload

        await self._until(ctx, lambda: bool(self._frames) and written())
        return seen["write"][0] - seen["mac_rx"][-1]

    async def _frame(self, ctx: Any, packet: RdmaPacket) -> None:
        """Send a packet to ``mac_rx`` word by word, and wait for ``_QUIET`` cycles."""
        own = Endpoint(self._own.mac, self._own.ip)
        frame = encode(packet, source=self._peer, destination=own)
        for at in range(0, len(frame), self._step):
            part = frame[at : at + self._step]
            beat = {"data": int.from_bytes(part, "little"), "keep": (1 << len(part)) - 1}
            await self._put(ctx, self.nic.mac_rx, beat | {"last": at + self._step >= len(frame)})
        await ctx.tick().repeat(_QUIET)

    async def _until(self, ctx: Any, true: Callable[[], bool]) -> None:
        """Wait until a condition holds, and then for ``_QUIET`` cycles."""
        for _ in range(_PATIENCE):
            if true():
                break
            await ctx.tick()
        assert true(), "not done"
        await ctx.tick().repeat(_QUIET)

    def _forget(self) -> dict[str, list[int]]:
        for log in self._seen.values():
            log.clear()
        self._frames.clear()
        return self._seen


def _numbered(moves: list[Move]) -> list[tuple[int, Move]]:
    """Return each move with its sequence number in its queue pair."""
    before = [[other.index for other in moves[:n]].count(move.index) for n, move in enumerate(moves)]
    return list(zip(before, moves, strict=True))
