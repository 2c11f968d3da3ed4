"""``fanin nic run --kind rdma``: a node of one-sided writes at a Linux interface."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.cli.nic.rtl import ratio, serve_rtl
from fanin.cli.ranges import integer
from fanin.cli.serving import say, stopped_by_signals
from fanin.rdma.facts import FIRST_QUEUE_PAIR, PRESETS, Region
from fanin.runs.lock import try_lock
from fanin.runs.output import print_json, table
from fanin.wire.ethernet import Endpoint
from fanin.wire.rdma import PSN_BITS

if TYPE_CHECKING:
    from fanin.sim.nic.rdma_settings import Peer, RdmaSettings
    from fanin.sim.nic.served import NicResult

MEMORY_BYTES = 1 << 20
RKEY = 1
OPTIONS = ("port", "ip", "mac", "memory", "memory_bytes", "peer", "rkey", "control", "preset")


def add_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options that only this kind has."""
    group.add_argument("--ip", metavar="A.B.C.D", help="the node's IPv4 address")
    group.add_argument(
        "--mac", metavar="MAC", help="MAC address of the node (default: 02:00 and the IPv4 address)"
    )
    group.add_argument(
        "--memory", type=Path, metavar="FILE", help="file of the node's memory, created if absent"
    )
    group.add_argument(
        "--memory-bytes", type=int, metavar="N", help=f"size of a new memory (default: {MEMORY_BYTES})"
    )
    group.add_argument(
        "--peer",
        action="append",
        metavar="A.B.C.D[:QP]",
        help=f"the other end of the next queue pair, and its number (default: {FIRST_QUEUE_PAIR}); repeatable",
    )
    rkey_help = "key that permits writes to the whole memory; 0: none"
    group.add_argument("--rkey", type=integer, default=RKEY, metavar="KEY", help=rkey_help)
    group.add_argument(
        "--control", type=Path, metavar="SOCKET", help="Unix socket for programs that control the node"
    )


def run(args: argparse.Namespace) -> None:
    """Run the node. Raises InputError for a wrong option, file or interface, before any frame is taken."""
    from fanin.sim.nic.control import check_control
    from fanin.sim.nic.rdma_settings import ip_text
    from fanin.wire.ethernet import mac_text

    for name in ("port", "ip", "memory"):
        if getattr(args, name) is None:
            raise InputError(f"--{name}: --kind rdma needs it")
    settings = _settings(args)
    if args.control:
        check_control(args.control)
    endpoint = settings.endpoint
    start_message = (
        f"RDMA node {'as a model' if args.model else 'in RTL'} at {args.port}: {ip_text(endpoint.ip)}, "
        f"{mac_text(endpoint.mac)}, {settings.size:,} bytes of {args.memory}, path MTU {settings.mtu}"
    )
    try:
        with _open_memory(settings) as settings_with_memory:
            result = (_serve_model if args.model else _serve_rtl)(args, settings_with_memory, start_message)
    finally:
        if args.control:  # a killed simulator has left the file
            with contextlib.suppress(InputError):
                check_control(args.control)
    counts: dict[str, Any] = {name: getattr(result, name) for name in ("counters", "lost", "seconds")}
    if args.json:
        print_json(counts | {"simulated_seconds": result.simulated_seconds})
    else:
        print(_summary(result))


def _settings(args: argparse.Namespace) -> RdmaSettings:
    from fanin.host.ethernet import mtu_of
    from fanin.sim.nic.outside import check_interfaces
    from fanin.sim.nic.rdma_settings import RdmaSettings, default_mac, parse_ip, parse_mac, path_mtu

    if args.preset not in PRESETS:
        raise InputError(f"--preset {args.preset}: of an RDMA node must be one of {', '.join(PRESETS)}")
    config = PRESETS[args.preset]
    ip = parse_ip("--ip", args.ip)
    mac = default_mac(ip) if args.mac is None else parse_mac("--mac", args.mac)
    peers = tuple(_peer(text) for text in args.peer or ())
    if len(peers) > config.queue_pairs:
        raise InputError(f"--peer: a {args.preset} node has {config.queue_pairs} queue pairs, not {len(peers)}")
    if not 0 <= args.rkey < 1 << 32:
        raise InputError(f"--rkey {args.rkey}: must be 0 to {(1 << 32) - 1}")
    size = _size(args, config.width // 8, 1 << config.address_width)
    numbers = range(FIRST_QUEUE_PAIR, FIRST_QUEUE_PAIR + config.queue_pairs)
    check_interfaces([args.port])
    mtu = path_mtu(mtu_of(args.port))
    if not mtu:
        raise InputError(f"--port {args.port}: its MTU, {mtu_of(args.port)}, has no room for a packet")
    return RdmaSettings(
        config=config,
        port=args.port,
        endpoint=Endpoint(mac, ip),
        memory=args.memory.absolute(),
        size=size,
        mtu=mtu,
        regions=(Region(0, size, args.rkey, frozenset(numbers)),) if args.rkey else (),
        peers=peers,
        control=args.control.absolute() if args.control else None,
    )


def _peer(text: str) -> Peer:
    from fanin.sim.nic.rdma_settings import Peer, parse_ip

    ip, colon, number = text.partition(":")
    if not colon:
        return Peer(parse_ip("--peer", ip))
    try:
        value = integer(number)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << PSN_BITS:
        raise InputError(f"--peer {text}: {number} is no queue pair's number")
    return Peer(parse_ip("--peer", ip), value)


def _size(args: argparse.Namespace, word_bytes: int, maximum: int) -> int:
    """Return the size of the existing or new memory file, in bytes. Raises InputError.

    - ``word_bytes``: the size must be a multiple of this number.
    - ``maximum``: maximum size, in bytes.
    """
    path, requested = args.memory, args.memory_bytes
    if path.is_symlink():
        raise InputError(f"--memory {path}: is a link to {path.readlink()}; name the file itself")
    if path.exists():
        if not path.is_file():
            raise InputError(f"--memory {path}: is no file")
        size = path.stat().st_size
        if requested not in (None, size):
            raise InputError(f"--memory-bytes {requested}: {path} exists, and has {size}")
        option = f"--memory {path}"
    else:
        if not path.parent.is_dir():
            raise InputError(f"--memory {path}: there is no folder {path.parent}")
        size = MEMORY_BYTES if requested is None else requested
        option = f"--memory-bytes {size}"
    if not word_bytes <= size <= maximum or size % word_bytes:
        raise InputError(
            f"{option}: must have a multiple of {word_bytes} bytes, at most {maximum:,}, not {size:,}"
        )
    return size


@contextlib.contextmanager
def _open_memory(settings: RdmaSettings) -> Iterator[RdmaSettings]:
    """Yield settings with an open memory file of the user; a later change of its name has no effect.

    A new file has mode 0600. Raises InputError for a link, a file of several names or of another user,
    one that others may write, and one that another node uses.
    """
    path = settings.memory
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(os.open(path, flags, 0o600), "r+b", buffering=0))
            _check_own(path, settings.size, os.fstat(file.fileno()))
            if not try_lock(file.fileno()):
                raise InputError(
                    f"--memory {path}: another fanin nic run uses it; each node has a memory of its own"
                )
            file.truncate(settings.size)
        except OSError as error:
            raise InputError(f"--memory {path}: {error.strerror}") from error
        yield replace(settings, checked_memory=Path(f"/proc/{os.getpid()}/fd/{file.fileno()}"))


def _check_own(path: Path, size: int, status: os.stat_result) -> None:
    """Raise InputError unless a memory file is new, or has ``size`` bytes and only this user may write it."""
    defect = None
    if not stat.S_ISREG(status.st_mode):
        defect = "is no file"
    elif status.st_uid != os.geteuid():
        defect = "is another user's"
    elif status.st_nlink != 1:
        defect = f"has {status.st_nlink} names (hard links), not one"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        defect = "others may write it"
    elif status.st_size not in (0, size):
        defect = f"has {status.st_size:,} bytes now, not {size:,}"
    if defect:
        raise InputError(f"--memory {path}: {defect}; name a file of your own")


def _serve_model(args: argparse.Namespace, settings: RdmaSettings, start_message: str) -> NicResult:
    from contextlib import closing

    from fanin.host.ethernet import open_interface
    from fanin.sim.nic.rdma_model import RdmaModelService

    with (
        open_interface(settings.port) as interface,
        closing(RdmaModelService(settings, interface, slowdown=args.slowdown)) as service,
        stopped_by_signals(service.stop),
    ):
        say(start_message)
        return service.serve(args.seconds)


def _serve_rtl(args: argparse.Namespace, settings: RdmaSettings, start_message: str) -> NicResult:
    from fanin.sim.nic.rdma import RdmaNicCosim

    node = RdmaNicCosim(settings.config)

    def serve(stop: Any, progress: Any) -> NicResult:
        return node.serve(settings, slowdown=args.slowdown, stop=stop, progress=progress)

    return serve_rtl(args, [settings.port], start_message, serve)


def _summary(result: NicResult) -> str:
    rows = [[name, f"{count:,}"] for name, count in result.counters.items() if count]
    if result.lost:
        rows.append(["lost at the interface", f"{result.lost:,}"])
    text = table(rows, right=[1]) if rows else "  nothing was counted"
    return text + ratio(result.seconds, result.simulated_seconds)
