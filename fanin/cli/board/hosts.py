"""``fanin board ping`` and ``fanin board status``: facts and registers of boards on the network."""

from __future__ import annotations

import argparse
from contextlib import closing
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from fanin.base.errors import CheckFailed, InputError
from fanin.base.limits import is_number
from fanin.runs.output import add_json, print_json, table

if TYPE_CHECKING:  # --help must not wait for Amaranth to load
    from fanin.host.board import BoardClient, BoardDescription

Facts = dict[str, Any]


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare both parts and their options."""
    for name, work, purpose, note in (
        ("ping", _ping, "show board, build and holder", ""),
        (
            "status",
            _status,
            "show a board's registers: addresses, link, counters, faults",
            " The command holds the board meanwhile; if another host holds it, the answer is that of ping.",
        ),
    ):
        parser = parts.add_parser(name, help=purpose, description=f"Ask boards by UDP: {purpose}.{note}")
        parser.add_argument(
            "hosts", nargs="+", metavar="HOST", help="a board's address; HOST:PORT for another port"
        )
        add_json(parser)
        parser.set_defaults(run=run, work=work)


def run(args: argparse.Namespace) -> int:
    """Query each board and print the answers. Raises CheckFailed if a board does not answer."""
    from fanin.host.board import BoardClient

    answers: dict[str, Facts] = {}
    errors = []
    for host, address in [(host, _address(host)) for host in args.hosts]:
        try:
            with closing(BoardClient(*address)) as client:
                answers[host] = args.work(client)
        except InputError as error:  # unknown name, no answer, or no board's answer
            errors.append(str(error))
    if args.json:
        print_json({"boards": answers})
    else:
        _show(answers)
    if errors:
        raise CheckFailed("; ".join(errors))
    return 0


def _address(text: str) -> tuple[str, int]:
    """Parse HOST or HOST:PORT. Raises InputError."""
    from fanin.wire.control import CONTROL_PORT

    host, colon, port = text.partition(":")
    if not host or (colon and not (is_number(port) and 0 < int(port) < 1 << 16)):
        raise InputError(f"{text!r} must be HOST or HOST:PORT")
    return host, int(port) if colon else CONTROL_PORT


def _ping(client: BoardClient) -> Facts:
    return _public_facts(client.hello())


def _board_name(number: int) -> str:
    from fanin.hdl.boards.board import BOARDS

    names = {board.number: board.name for board in BOARDS.values()}
    return names.get(number, f"number {number}")


def _public_facts(board_facts: BoardDescription) -> Facts:
    return {
        "board": _board_name(board_facts.board),
        "version": board_facts.version,
        "build": f"{board_facts.build:08x}",
        "uptime_s": board_facts.uptime,
        "held_by": str(board_facts.holder) if board_facts.holder else None,
    }


def _status(client: BoardClient) -> Facts:
    """Return all registers of the board; only its public facts if another host holds the board."""
    from fanin.hdl.boards.memory_map import BOARD
    from fanin.hdl.boards.registers import board_registers
    from fanin.hdl.bus.register_map import Access
    from fanin.host.board import BoardHeld
    from fanin.host.driver import Batch

    facts = _public_facts(client.hello())
    registers = board_registers()
    batch = Batch(registers, base=BOARD)
    names = [register.name for register in registers.registers if register.access is not Access.PULSE]
    for name in names:
        batch.read(name)
    try:
        with client:
            values = client.run(batch)
    except BoardHeld:
        return facts
    return facts | dict(zip(names, values, strict=True))


def _readable(facts: Facts) -> Facts:
    """Return a board's facts in usual notation: MAC and IPv4 addresses, build numbers in hexadecimal."""
    from fanin.wire.ethernet import mac_text

    if "holder" not in facts:  # of ping
        return facts
    low, high = facts["holder_mac_low"], facts["holder_mac_high"]
    readable = facts | {
        "id": f"0x{facts['id']:08x}",
        "board": _board_name(facts["board"]),
        "build": f"{facts['build']:08x}",
        "holder": str(IPv4Address(facts["holder"])) if facts["holder"] else None,
        "holder_mac": mac_text(high << 32 | low) if high | low else None,
        "own_mac": mac_text(facts["own_mac"]),
        "own_ip": str(IPv4Address(facts["own_ip"])),
    }
    return {
        name: value for name, value in readable.items() if name not in ("holder_mac_low", "holder_mac_high")
    }


def _show(answers: dict[str, Facts]) -> None:
    """Print a table with a column per board."""
    answers = {host: _readable(facts) for host, facts in answers.items()}
    names = list(dict.fromkeys(name for facts in answers.values() for name in facts))
    rows = [
        ["", *answers],
        *([name, *(_text(facts.get(name)) for facts in answers.values())] for name in names),
    ]
    if answers:
        print(table(rows))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(member)}" for name, member in value.items())
    return "–" if value is None else str(value)
