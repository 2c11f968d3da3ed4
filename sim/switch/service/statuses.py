"""Ends of calls: a status, and for a batch the status of each part.

A batch's statuses are in a trailer. By default, gRPC clients accept 8 KiB of trailers.
"""

from __future__ import annotations

from typing import NoReturn

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

from fanin.sim.switch.service.faults import Fault
from fanin.sim.switch.service.protobuf import prefix

ROOM_BYTES = 7168  #: bytes of a trailer that every client accepts
ROOM_KEY = "fanin-status-bytes"  #: metadata by which a client asks for larger trailers
_TRAILER = "grpc-status-details-bin"
_TYPE = b"p4.v1.Error"
_URL, _SHORT_URL = b"type.googleapis.com/" + _TYPE, b"/" + _TYPE


def abort(context: grpc.ServicerContext, fault: Fault) -> NoReturn:
    """End a call with a fault."""
    context.abort(status_code(fault.code), fault.message)
    raise AssertionError  # abort raises


def status_code(code: int) -> grpc.StatusCode:
    """Return gRPC's name of a code of google.rpc.Code."""
    return next((status for status in grpc.StatusCode if status.value[0] == code), grpc.StatusCode.UNKNOWN)


def finish_batch(context: grpc.ServicerContext, statuses: list[bytes]) -> None:
    """End a batch's call if a part failed; the status is UNKNOWN and has a ``p4.Error`` for each part."""
    faults = [status for status in statuses if status]
    if not faults:
        return
    text = p4r.Error.FromString(faults[0]).message
    room = ROOM_BYTES
    for key, value in context.invocation_metadata():
        if key == ROOM_KEY and str(value).isdecimal():
            room = int(value)
    details, count = details_of(statuses, room)
    if count < len(statuses):
        text += (
            f" ({len(faults)} of {len(statuses)} parts failed; {room} bytes have the first {count} statuses; "
            f"metadata {ROOM_KEY} asks for more)"
        )
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=text).SerializeToString()
    context.set_trailing_metadata(((_TRAILER, status + details),))
    abort(context, Fault(rpc_code.UNKNOWN, text))


def details_of(statuses: list[bytes], room: int) -> tuple[bytes, int]:
    """Return field ``details`` of a ``google.rpc.Status``, at most ``room`` bytes, and its number of statuses.

    If the statuses do not fit, they lose their messages and get a short URL of their type.
    """
    if len(statuses) * len(_URL) <= room:
        whole = b"".join(_detail(_URL, status) for status in statuses)
        if len(whole) <= room:
            return whole, len(statuses)
    found: list[bytes] = []
    for status in statuses:
        code = p4r.Error.FromString(status).canonical_code
        detail = _detail(_SHORT_URL, p4r.Error(canonical_code=code).SerializeToString())
        room -= len(detail)
        if room < 0:
            break
        found.append(detail)
    return b"".join(found), len(found)


def _detail(url: bytes, status: bytes) -> bytes:
    """Return a status as one of the details, a ``google.protobuf.Any``."""
    value = prefix(1, len(url)) + url + (prefix(2, len(status)) + status if status else b"")
    return prefix(3, len(value)) + value
