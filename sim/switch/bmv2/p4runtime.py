"""Control of a running switch through P4Runtime: pipeline, table entries, multicast groups, direct counters.

finsy implements the protocol's messages, and P4Info gives ids and widths. This module adds the objects of
:mod:`fanin.p4.control`, a bound on every wait, and one line per error.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from finsy import p4entity
from finsy.grpcutil import GRPCStatusCode
from finsy.p4client import P4Client, P4ClientError
from finsy.p4schema import P4MatchType, P4Schema, P4Table
from finsy.pbutil import PBMessage
from finsy.proto import p4i, p4r
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from fanin.base.errors import InputError, ToolFailed
from fanin.base.plain import MAX_FILE_BYTES, read_regular
from fanin.p4.control import Exact, Lpm, Match, MulticastGroup, Range, Replica, TableEntry, Ternary

T = TypeVar("T")
ADDRESS = "127.0.0.1:9559"  # P4Runtime's port
_REQUEST_TIMEOUT = 20.0  # seconds per request; finsy gives up after 10
_BATCH_CELLS = 1024  # register cells per request
_MAX_ENTITIES = 1 << 16  # entries, groups or counters of an answer
_MAX_P4INFO_BYTES = 4 << 20  # bytes of a file; gRPC has the same limit for a message
_QUOTED = 200  # characters of an error of finsy and protobuf
#: Errors of finsy and protobuf for an answer that is not P4Runtime's, or not of the switch's program.
_UNREADABLE = (DecodeError, ValueError, LookupError, TypeError, AttributeError)
logging.getLogger("finsy").addHandler(logging.NullHandler())  # its warnings would be lines on stderr
_RETRY_DELAY = 0.05  # seconds between attempts to connect


class Unreachable(ToolFailed):
    """No server answers at the address."""


@dataclass(frozen=True)
class CompiledProgram:
    """Files written by p4c for BMv2."""

    config: Path
    p4info: Path

    def schema(self) -> P4Schema:
        """Read both files. Raises InputError that names a file that cannot be read, or is none of p4c's."""
        info, config = _content(self.p4info, _MAX_P4INFO_BYTES), _content(self.config)
        try:
            return P4Schema(text_format.Parse(info.decode(), p4i.P4Info()), config)
        except (text_format.ParseError, ValueError, LookupError, TypeError, RecursionError) as error:
            cause = " ".join(str(error).split())[:_QUOTED]
            raise InputError(f"{self.p4info}: no P4Info, as fanin p4 emit writes it: {cause}") from error


def _content(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    try:
        return read_regular(path, max_bytes)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


class P4Runtime:
    """Primary controller of the switch at ``address``, until :meth:`close` or until a later controller.

    ``program`` becomes the pipeline if given; otherwise the switch keeps its pipeline. ``schema`` is its
    P4Info; ``schema.exists`` is False if the switch runs none. Calls raise ToolFailed if the switch refuses or
    does not answer. They raise ValueError, before anything is sent, for names that P4Info does not have.
    """

    def __init__(self, address: str, *, device: int = 0, program: CompiledProgram | None = None):
        self.address = address
        self.schema = program.schema() if program else P4Schema()
        self._device = device
        self._election = p4r.Uint128(low=time.time_ns())
        self._client = P4Client(address, wait_for_ready=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            self._run(self._open())
            if program:
                self.set_pipeline(program)
            else:
                self._run(self._get_pipeline())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up control and close the connection."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._close())
        except ToolFailed:  # the switch may have ended
            pass
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_REQUEST_TIMEOUT)
            self._loop.close()

    def set_pipeline(self, program: CompiledProgram) -> None:
        """Load ``program`` into the switch, without entries, groups or counts."""
        self.schema = program.schema()
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self.schema.get_pipeline_config(),
        )
        self._run(self._client.request(request))

    def insert(self, entry: TableEntry) -> None:
        """Add a table entry."""
        self._write(p4r.Update.INSERT, encode_entry(self.schema, entry))

    def delete(self, entry: TableEntry) -> None:
        """Remove a table entry."""
        self._write(p4r.Update.DELETE, encode_entry(self.schema, entry))

    def set_multicast_group(self, group: MulticastGroup) -> None:
        """Add or change a multicast group."""
        exists = any(other.id == group.id for other in self.multicast_groups())
        self._write(p4r.Update.MODIFY if exists else p4r.Update.INSERT, _encode_group(group))

    def delete_multicast_group(self, number: int) -> None:
        """Remove a multicast group."""
        self._write(p4r.Update.DELETE, p4entity.P4MulticastGroupEntry(number))

    def multicast_groups(self) -> list[MulticastGroup]:
        """Return all groups of the switch."""
        return [_decode_group(group) for group in self._read(p4entity.P4MulticastGroupEntry())]

    def entries(self, table: str) -> list[TableEntry]:
        """Return a table's entries, except the default one."""
        entries = self._read(p4entity.P4TableEntry(table))
        try:
            return [decode_entry(self.schema, entry) for entry in entries if not entry.is_default_action]
        except (LookupError, TypeError) as error:
            raise ToolFailed(f"{self.address}: entries of {table} do not fit the program") from error

    def direct_counter(self, entry: TableEntry) -> tuple[int, int]:
        """Return the packets and bytes that an entry has matched."""
        query = encode_entry(self.schema, entry)
        query.action = None
        fields = self.schema.tables[entry.table].match_fields
        for counter in self._read(p4entity.P4DirectCounterEntry(table_entry=query)):
            # A request without a match returns all entries of its table.
            counted_entry = counter.table_entry
            match = {fields[key].name: value for key, value in (counted_entry.match or {}).items()}
            if (match, counted_entry.priority) == (query.match or {}, entry.priority):
                return counter.packet_count, counter.byte_count
        raise ToolFailed(f"{self.address}: {entry.table} has no entry {dict(entry.match)}")

    def has_registers(self, name: str) -> bool:
        """Return whether P4Runtime reads a register here; BMv2 does not."""
        try:
            return bool(self._read(p4entity.P4RegisterEntry(name, index=0)))
        except ToolFailed as error:
            if isinstance(error.__cause__, P4ClientError):
                return False
            raise

    def read(self, name: str, index: int) -> int:
        """Return a register's cell."""
        entries = self._read(p4entity.P4RegisterEntry(name, index=index))
        if len(entries) != 1 or not isinstance(entries[0].data, int):
            raise ToolFailed(f"{self.address}: {name}[{index}] has no number")
        return entries[0].data

    def write_range(self, name: str, start: int, end: int, value: int) -> None:
        """Set a register's cells from ``start`` up to ``end``."""
        for begin in range(start, end, _BATCH_CELLS):
            cells = range(begin, min(begin + _BATCH_CELLS, end))
            self._write(
                p4r.Update.MODIFY, *(p4entity.P4RegisterEntry(name, index=i, data=value) for i in cells)
            )

    def _write(self, kind: Any, *entities: Any) -> None:
        updates = [p4r.Update(type=kind, entity=entity.encode(self.schema)) for entity in entities]
        self._run(self._client.request(p4r.WriteRequest(device_id=self._device, updates=updates)))

    def _read(self, entity: Any) -> list[Any]:
        request = p4r.ReadRequest(device_id=self._device, entities=[entity.encode(self.schema)])

        async def read() -> list[Any]:
            found: list[Any] = []
            async for reply in self._client.request_iter(request):
                found += [p4entity.decode_entity(each, self.schema) for each in reply.entities]
                if len(found) > _MAX_ENTITIES:
                    raise ToolFailed(f"{self.address}: sent more than {_MAX_ENTITIES:,} entries")
            if not all(isinstance(each, type(entity)) for each in found):
                raise ToolFailed(f"{self.address}: sent entries of another kind than requested")
            return found

        return self._run(read())

    def _add_election(self, message: PBMessage) -> None:
        """Add the election id to requests that change something."""
        if isinstance(message, p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest):
            message.election_id.CopyFrom(self._election)

    async def _open(self) -> None:
        await self._client.open(complete_request=self._add_election)
        bid = p4r.MasterArbitrationUpdate(device_id=self._device, election_id=self._election)
        await self._client.send(p4r.StreamMessageRequest(arbitration=bid))
        answer = await self._client.receive()
        if answer.arbitration.status.code:
            raise ToolFailed(f"{self.address}: another controller is the primary one")

    async def _close(self) -> None:
        await self._client.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}  # tasks of gRPC
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _get_pipeline(self) -> None:
        kind = p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self._device, response_type=kind)
        try:
            answer = await self._client.request(request)
        except P4ClientError as error:
            if not error.is_pipeline_missing:
                raise
        else:
            if answer.config.HasField("p4info"):
                self.schema.set_p4info(answer.config.p4info)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` in the loop's thread; return its result. Raises ToolFailed."""

        async def bounded() -> T:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                return await coroutine

        future = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return future.result(2 * _REQUEST_TIMEOUT)
        except ToolFailed:
            raise
        except P4ClientError as error:
            if error.code == GRPCStatusCode.UNAVAILABLE:
                raise Unreachable(f"{self.address}: no P4Runtime server answers") from error
            raise ToolFailed(f"{self.address}: {_reason(error)}") from error
        except TimeoutError as error:
            raise ToolFailed(f"{self.address}: no answer in {_REQUEST_TIMEOUT:g} s") from error
        except (RuntimeError, AssertionError) as error:  # raised by finsy when the connection has ended
            raise ToolFailed(f"{self.address}: the P4Runtime connection has ended") from error
        except _UNREADABLE as error:
            cause = " ".join(str(error).split())[:_QUOTED]
            raise ToolFailed(f"{self.address}: sent an answer that cannot be read: {cause}") from error


def connect(
    address: str, program: CompiledProgram, *, timeout: float, check_alive: Callable[[], None]
) -> P4Runtime:
    """Return a connection to a switch that is starting. Raises ToolFailed after ``timeout`` seconds.

    ``check_alive``: raises an error if the switch has died.
    """
    end = time.monotonic() + timeout
    while True:
        check_alive()
        try:
            return P4Runtime(address, program=program)
        except Unreachable:
            if time.monotonic() > end:
                raise
        time.sleep(_RETRY_DELAY)


def _reason(error: P4ClientError) -> str:
    """Return one line that says what was refused, and why."""
    causes = [f"{e.canonical_code.name}: {e.message}" for e in error.details.values()]
    text = "; ".join(causes) or f"{error.code.name}: {error.message}"
    return " ".join(text.split())


def encode_entry(schema: P4Schema, entry: TableEntry) -> p4entity.P4TableEntry:
    """Return an entry as a finsy object. Raises ValueError for names and values that P4Info does not have."""
    table = schema.tables.get(entry.table)
    if table is None:
        raise ValueError(f"the program has no table {entry.table}")
    match = {
        key: value for key, m in entry.match.items() if (value := _encode_match(table, key, m)) is not None
    }
    return p4entity.P4TableEntry(
        entry.table,
        match=p4entity.P4TableMatch({key: value for key, value in match.items() if value is not None}),
        action=p4entity.P4TableAction(entry.action, **entry.parameters),
        priority=entry.priority,
    )


def _encode_match(table: P4Table, key: str, match: Match) -> Any:
    """Return P4Runtime's form of a match: don't-care bits are 0, a don't-care key is left out."""
    field = table.match_fields.get(key)
    if field is None:
        raise ValueError(f"table {table.name} has no key {key}")
    all_ones = (1 << field.bitwidth) - 1
    match match:
        case Exact(value):
            return value
        case Ternary(value, mask):
            return (value & mask, mask) if mask else None
        case Lpm(value, length):
            return (value & all_ones ^ all_ones >> length, length) if length else None
        case Range(low, high):
            return (low, high) if (low, high) != (0, all_ones) else None


def decode_entry(schema: P4Schema, entry: p4entity.P4TableEntry) -> TableEntry:
    """Return the entry that :func:`encode_entry` was given, without don't-care keys."""
    table, action = schema.tables[entry.table_id], entry.action
    if not isinstance(action, p4entity.P4TableAction):
        raise ValueError(f"table {table.name} has entries with action profiles, which fanin does not support")
    fields = table.match_fields
    match = {
        fields[key].name: _decode_match(fields[key].match_type, value)
        for key, value in (entry.match or {}).items()
    }
    name = schema.actions[action.name].name
    return TableEntry(table.name, match, name, dict(action.args), entry.priority)


def _decode_match(kind: P4MatchType | str, value: Any) -> Match:
    if kind is P4MatchType.EXACT:
        return Exact(int(value))
    first, second = map(int, value)
    kinds: dict[Any, Callable[[int, int], Match]] = {
        P4MatchType.TERNARY: Ternary,
        P4MatchType.LPM: Lpm,
        P4MatchType.RANGE: Range,
    }
    return kinds[kind](first, second)


def _encode_group(group: MulticastGroup) -> p4entity.P4MulticastGroupEntry:
    replicas = [p4entity.P4Replica(replica.port, instance=replica.id) for replica in group.replicas]
    return p4entity.P4MulticastGroupEntry(group.id, replicas=replicas)


def _decode_group(group: p4entity.P4MulticastGroupEntry) -> MulticastGroup:
    replicas: Iterable[Any] = group.replicas
    return MulticastGroup(
        group.multicast_group_id,
        tuple(Replica(r) if isinstance(r, int) else Replica(r.port, r.instance) for r in replicas),
    )
