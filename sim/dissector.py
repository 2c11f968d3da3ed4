"""Wireshark dissector of the reliable link's frames, for the ring and for CNN connections."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from fanin.p4.companions import proto_fields
from fanin.wire.connection import CONNECTION_LINK
from fanin.wire.ethernet import Encap
from fanin.wire.fields import Field, byte_length
from fanin.wire.link import ARRIVED, ETHERTYPE_LINK, LINK_PORT, LinkFormat, LinkKind
from fanin.wire.ring import RING_LINK

FILE = "link.lua"
_TEMPLATE = Path(__file__).with_name("link.lua.j2")


def _user(name: str, title: str, form: LinkFormat) -> dict[str, Any]:
    """Return the template's variables for one user of the link."""
    fields = proto_fields(form.fields)
    return {
        "name": name,
        "title": title,
        "fields": fields,
        "at": {field["name"]: field["offset"] for field in fields},
        "value": _values(form.fields),
        "data": (*form.job, "sequence", *form.data),
        "control": (*form.job, "sequence", form.limit),
    }


def _values(fields: Sequence[Field]) -> dict[str, str]:
    """Return Lua expressions for the values of a header's fields."""
    values, bit = {}, 0
    for field in fields:
        at = bit // 8
        whole_bytes = field.bits % 8 == 0
        expression = f"buffer({at}, {field.bits // 8}):uint()"
        values[field.name] = expression if whole_bytes else f"buffer({at}, 1):bitfield({bit % 8}, {field.bits})"
        bit += field.bits
    return values


def link_dissector() -> str:
    """Return the dissector in Lua, for raw Ethernet and UDP; filters ``fanin_ring…``, ``fanin_connection…``."""
    form = CONNECTION_LINK
    header = byte_length(form.fields)
    users = [
        _user("ring", "ring all-reduce", RING_LINK),
        _user("connection", "connection of CNN devices", form),
    ]
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(_TEMPLATE.read_text()).render(
        users=users,
        kinds=list(LinkKind),
        header=header,
        arrived=ARRIVED[0],
        port=LINK_PORT,
        ethertype=f"{ETHERTYPE_LINK:#06x}",
        versions={"ring": RING_LINK.version, "connection": form.version},
        udp_zeros=form.header_bytes(Encap.UDP) - form.header_at(Encap.UDP) - header,
        words_at=users[1]["at"]["words"],
    )
