"""The aggregating switch as a program of this host: datagrams from boards in, datagrams to boards out."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from fanin.base.errors import InputError
from fanin.job import SWITCH, Job
from fanin.sim.pcap import PcapWriter
from fanin.sim.switch.base import Switch
from fanin.wire.aggregation import AGGREGATION, Encap, Kind, header_length
from fanin.wire.ethernet import MIN_FRAME_BYTES, encode_udp
from fanin.wire.fields import byte_length

_HEADER = header_length(Encap.UDP)
_OPERATION = struct.Struct(">BBHI")  # aggregation header: kind with version, job, slot, round
MAX_LATENCIES = 1 << 20  #: operations whose latency is kept
_MAX_DATAGRAM = 65536
_STOP_CHECK_S = 0.1  # interval at which the thread checks whether to end
_PS = 1000  # picoseconds per nanosecond
Address = tuple[str, int]


class HostSwitch:
    """UDP server for ``switch``, which runs inside a ``with`` block.

    - ``boards``: addresses of the workers of ``job``, in their order.
    - ``foreign_datagrams``: number of dropped datagrams: too short, or from other addresses.
    - ``active_workers``: workers from which a datagram has arrived.
    - ``operations``: number of operations whose RESULT was sent to all.
    - ``latencies_ns``: of the first ``MAX_LATENCIES`` operations, the time from the first AGG at the socket to
      the RESULT for all: the host's share of an AllReduce.
    - ``pcap``: capture that is written, not closed.

    Raises InputError if the address cannot be used.
    """

    def __init__(
        self,
        switch: Switch,
        *,
        boards: Sequence[Address],
        job: Job,
        address: Address,
        pcap: PcapWriter | None = None,
    ):
        self._switch = switch
        self._boards = list(boards)
        self._job = job
        self._pcap = pcap  # capture of frames as the switch sees them
        self._start_ns = time.perf_counter_ns()
        self._ports = {board: port for port, board in enumerate(self._boards)}
        # By slot of the job: its newest round, and arrival of that round's first AGG; None after the RESULT.
        self._agg_arrivals: dict[int, tuple[int, int | None]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="switch", daemon=True)
        self.latencies_ns: list[int] = []
        self.operations = 0
        self.active_workers: set[int] = set()
        self.foreign_datagrams = 0
        self.frames = 0
        self.failure: Exception | None = None  #: exception that ended the thread early
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind(address)
        except OSError as error:
            self._socket.close()
            raise InputError(
                f"UDP {address[0]}:{address[1]} is unavailable: {error.strerror}; another run may use it"
            ) from error
        self._socket.setblocking(False)

    @property
    def address(self) -> Address:
        """Address of the socket."""
        host, port = self._socket.getsockname()[:2]
        return host, port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()  # it checks ``_stop`` every _STOP_CHECK_S seconds, and never waits for a board
        self._socket.close()

    def _serve(self) -> None:
        try:
            while not self._stop.is_set():
                if select.select([self._socket], [], [], _STOP_CHECK_S)[0]:
                    with contextlib.suppress(BlockingIOError):
                        while not self._stop.is_set():
                            self._exchange(*self._socket.recvfrom(_MAX_DATAGRAM))
        except Exception as failure:  # the run reads ``failure``, and ends
            self.failure = failure

    def _exchange(self, payload: bytes, source: Address) -> None:
        """Pass one datagram to the switch as a frame, and its answers to the boards."""
        port = self._ports.get(source)
        if port is None or len(payload) < byte_length(AGGREGATION):
            self.foreign_datagrams += 1
            return
        arrival_ns = time.perf_counter_ns()
        self.frames += 1
        self.active_workers.add(port)
        slot, number = self._note_arrival(payload, arrival_ns)
        frame = encode_udp(payload, source=self._job.members[port].endpoint, destination=SWITCH)
        frame = frame.ljust(MIN_FRAME_BYTES, b"\0")
        answers = self._switch.inject(port, frame, arrival_ns * _PS)
        if self._pcap:
            for captured in (frame, *(answer for _, answer, _ in answers)):
                self._pcap.write(captured, (arrival_ns - self._start_ns) * _PS)
        for destination_port, answer, _ in answers:
            with contextlib.suppress(BlockingIOError):  # a full socket: equivalent to a lost frame
                self._socket.sendto(answer[_HEADER : _HEADER + len(payload)], self._boards[destination_port])
        if slot is not None and len(answers) == len(self._boards):
            self._note_result(slot, number)

    def _note_arrival(self, payload: bytes, time_ns: int) -> tuple[int | None, int]:
        """Note the first AGG of a slot's newest round; return the slot of an AGG of the job, and its round.

        The slot is None for other packets. Slots bound the notes, since addresses of boards can be forged.
        """
        version_kind, job_id, slot, number = _OPERATION.unpack_from(payload)
        first, end = self._job.base, self._job.base + self._job.slots
        if version_kind & 15 != Kind.AGG or job_id != self._job.id or not first <= slot < end:
            return None, number
        if number > self._agg_arrivals.get(slot, (-1, None))[0]:
            self._agg_arrivals[slot] = number, time_ns
        return slot, number

    def _note_result(self, slot: int, number: int) -> None:
        """Note the result of a round for all workers, and its latency if its first AGG was noted."""
        newest, arrival_ns = self._agg_arrivals[slot]
        if newest == number and arrival_ns is not None:
            self.operations += 1
            if len(self.latencies_ns) < MAX_LATENCIES:
                self.latencies_ns.append(time.perf_counter_ns() - arrival_ns)
        self._agg_arrivals[slot] = number, None
