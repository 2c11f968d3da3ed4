"""Ends of calls: a status, and for a batch the status of each part.

A batch's statuses are in a trailer. By default, gRPC clients accept 8 KiB of trailers.
"""

from __future__ import annotations

from typing import NoReturn

import grpc
from finsy.proto import p4r, rpc_code, rpc_status

from fanin.base.limits import is_number
from fanin.sim.switch.service.faults import Fault
from fanin.sim.switch.service.protobuf import prefix

DEFAULT_LIMIT = 7168  #: bytes of statuses in a trailer that every client accepts
LIMIT_KEY = "fanin-status-bytes"  #: metadata by which a client asks for larger trailers
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
    limit = DEFAULT_LIMIT
    for key, value in context.invocation_metadata():
        if key == LIMIT_KEY and is_number(str(value)):
            limit = int(value)
    details, count = encode_details(statuses, limit)
    if count < len(statuses):
        text += (
            f" ({len(faults)} of {len(statuses)} parts failed; {limit} bytes have the first {count} statuses; "
            f"metadata {LIMIT_KEY} asks for more)"
        )
    status = rpc_status.Status(code=rpc_code.UNKNOWN, message=text).SerializeToString()
    context.set_trailing_metadata(((_TRAILER, status + details),))
    abort(context, Fault(rpc_code.UNKNOWN, text))


def encode_details(statuses: list[bytes], limit: int) -> tuple[bytes, int]:
    """Return field ``details`` of a ``google.rpc.Status``, at most ``limit`` bytes, and its number of statuses.

    If the statuses do not fit, they lose their messages and get a short URL of their type.
    """
    if len(statuses) * len(_URL) <= limit:
        details = b"".join(_encode_detail(_URL, status) for status in statuses)
        if len(details) <= limit:
            return details, len(statuses)
    short_details: list[bytes] = []
    for status in statuses:
        code = p4r.Error.FromString(status).canonical_code
        detail = _encode_detail(_SHORT_URL, p4r.Error(canonical_code=code).SerializeToString())
        limit -= len(detail)
        if limit < 0:
            break
        short_details.append(detail)
    return b"".join(short_details), len(short_details)


def _encode_detail(url: bytes, status: bytes) -> bytes:
    """Return a status as one of the details, a ``google.protobuf.Any``."""
    value = prefix(1, len(url)) + url + (prefix(2, len(status)) + status if status else b"")
    return prefix(3, len(value)) + value
