"""Queue pair of a standard NIC (ConnectX, soft-RoCE and others) through rdma-core's pyverbs.

Contract: docs/systems/rdma.md, "A standard peer". pyverbs comes with rdma-core (Debian: python3-pyverbs). It is
not on PyPI, and is imported only when a :class:`VerbsPeer` is made.
"""

from __future__ import annotations

import importlib
import socket
import time
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fanin.base.errors import InputError
from fanin.host.rdma_setup import End, mapped_gid
from fanin.rdma.facts import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

# Further attributes of the RC service, with the values of rdma-core's rc_pingpong.
_TIMEOUT = 14  # 4.096 µs · 2^14, some 67 ms without an answer
_RNR_TIMER = 12  # 0.64 ms
_RNR_RETRIES = 7  # unlimited
_HOPS = 64
_QUEUE = 64  # unfinished work requests, at most
_MAX_GIDS = 256
_POLL = 1e-4  # seconds


def _import(name: str) -> Any:
    try:
        return importlib.import_module(f"pyverbs.{name}")
    except ImportError as error:
        raise InputError(
            f"pyverbs is not installed ({error}): it comes with rdma-core (Debian: python3-pyverbs)"
        ) from error


@contextmanager
def _input_errors(device: str) -> Iterator[None]:
    """Turn pyverbs' errors into InputErrors of one line."""
    try:
        yield
    except _import("pyverbs_error").PyverbsError as error:
        raise InputError(f"{device}: {' '.join(str(error).split())}") from error


class VerbsPeer:
    """A reliable connected queue pair of an RDMA device, and memory that its peer may write.

    - ``device``: name, as in ``ibv_devices``.
    - ``length``: bytes of memory to register.
    - ``psn``: number of the first packet that it sends.
    - ``gid_index``: entry of its GID table; None: the first RoCEv2 entry with an IPv4 address.
    - ``port``: port of the device.

    Use it as a context manager: send its ``end`` to the peer, then ``connect`` it. Raises InputError that names
    device and cause, also if pyverbs is missing.
    """

    def __init__(self, device: str, *, length: int, psn: int, gid_index: int | None = None, port: int = 1):
        self._verbs = {name: _import(name) for name in ("device", "pd", "cq", "mr", "qp", "addr", "wr")}
        self._enums = _import("enums")
        self.device, self.port = device, port
        self._open = ExitStack()
        try:
            with _input_errors(device):
                self._create(length)
                self._gid = self._select_gid(gid_index)
                self.end = self._describe_end(length, psn)
        except BaseException:
            self._open.close()
            raise

    def _create(self, length: int) -> None:
        """Make a queue pair in state INIT, and its resources."""
        verbs, enums = self._verbs, self._enums
        self._context = self._open.enter_context(verbs["device"].Context(name=self.device))
        self._domain = self._open.enter_context(verbs["pd"].PD(self._context))
        access = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE
        self._region = self._open.enter_context(verbs["mr"].MR(self._domain, length, access))
        self._completions = self._open.enter_context(verbs["cq"].CQ(self._context, 2 * _QUEUE))
        capacity = verbs["qp"].QPCap(max_send_wr=_QUEUE, max_recv_wr=_QUEUE, max_send_sge=1, max_recv_sge=1)
        kind = verbs["qp"].QPInitAttr(
            qp_type=enums.IBV_QPT_RC, scq=self._completions, rcq=self._completions, cap=capacity, sq_sig_all=1
        )
        start = verbs["qp"].QPAttr(port_num=self.port)
        start.qp_access_flags = access
        self._pair = self._open.enter_context(verbs["qp"].QP(self._domain, kind, start))

    def _select_gid(self, index: int | None) -> Any:
        """Return the entry of the GID table, which must be RoCEv2 with an IPv4 address."""
        table = self._context.query_gid_table(_MAX_GIDS)
        candidates = [
            entry
            for entry in table
            if entry.port_num == self.port
            and entry.gid_type == self._enums.IBV_GID_TYPE_ROCE_V2
            and IPv6Address(entry.gid_str()).ipv4_mapped
        ]
        for entry in candidates:
            if index is None or entry.gid_index == index:
                return entry
        mismatch = "no GID" if index is None else f"GID {index} is not one"
        available = ", ".join(f"{entry.gid_index} {_mapped(entry)}" for entry in candidates) or "none"
        raise InputError(
            f"{self.device}: {mismatch} of RoCEv2 with an IPv4 address on port {self.port} ({available})"
        )

    def _describe_end(self, length: int, psn: int) -> End:
        interface = Path("/sys/class/net", _interface(self._gid.ndev_ifindex))
        mtu = 128 << self._context.query_port(self.port).active_mtu
        return End(
            queue_pair=self._pair.qp_num,
            psn=psn,
            gid=mapped_gid(_mapped(self._gid)),
            mac=(interface / "address").read_text().strip(),
            mtu=mtu,
            rkey=self._region.rkey,
            address=self._region.buf,
            length=length,
            vlan=_vlan(interface.name),
        )

    def connect(self, connection: Connection, peer: End) -> None:
        """Bring the queue pair to RTS with the negotiated parameters."""
        verbs = self._verbs
        with _input_errors(self.device):
            # pyverbs expects a GID as eight groups of four digits
            gid = verbs["addr"].GID(IPv6Address(peer.gid).exploded)
            route = verbs["addr"].GlobalRoute(
                dgid=gid,
                sgid_index=self._gid.gid_index,
                hop_limit=_HOPS,
                traffic_class=connection.traffic_class,
            )
            address = verbs["addr"].AHAttr(port_num=self.port, is_global=1, gr=route, sl=connection.priority)
            attributes = verbs["qp"].QPAttr(port_num=self.port)
            attributes.path_mtu = (connection.mtu >> 7).bit_length() - 1
            attributes.dest_qp_num = connection.peer
            attributes.rq_psn = connection.receive_psn
            attributes.sq_psn = connection.send_psn
            attributes.ah_attr = address
            attributes.min_rnr_timer = _RNR_TIMER
            attributes.timeout = _TIMEOUT
            attributes.retry_cnt = connection.retries
            attributes.rnr_retry = _RNR_RETRIES
            self._pair.to_rts(attributes)

    def read(self, length: int, offset: int = 0) -> bytes:
        """Read bytes of its memory."""
        return bytes(self._region.read(length, offset))

    def fill(self, content: bytes, offset: int = 0) -> None:
        """Write bytes into its memory."""
        self._region.write(content, len(content), offset)

    def await_immediate(self) -> None:
        """Post a receive; each message with immediate data consumes one."""
        wr = self._verbs["wr"]
        with _input_errors(self.device):
            empty = wr.SGE(self._region.buf, 0, self._region.lkey)
            self._pair.post_recv(wr.RecvWR(num_sge=1, sg=[empty]))

    def write(self, tag: int, offset: int, length: int, *, remote: int, rkey: int) -> None:
        """Post a write of ``length`` bytes of its memory into the peer's."""
        wr, enums = self._verbs["wr"], self._enums
        with _input_errors(self.device):
            segment = wr.SGE(self._region.buf + offset, length, self._region.lkey)
            request = wr.SendWR(wr_id=tag, opcode=enums.IBV_WR_RDMA_WRITE, num_sge=1, sg=[segment])
            request.set_wr_rdma(rkey, remote)
            self._pair.post_send(request)

    def completion(self, *, timeout: float = 10.0) -> tuple[int, str]:
        """Return tag and result of the next completion: ``success``, or rdma-core's name of the error.

        Raises InputError if there is none within ``timeout`` seconds.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with _input_errors(self.device):
                count, completions = self._completions.poll()
            if count:
                (completion,) = completions
                return completion.wr_id, self._verbs["cq"].cqe_status_to_str(completion.status).lower()
            time.sleep(_POLL)
        raise InputError(f"{self.device}: no completion for {timeout:g} s")

    def close(self) -> None:
        """Destroy queue pair and memory."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _mapped(entry: Any) -> IPv4Address:
    """Return the IPv4 address of an entry that has one."""
    ip = IPv6Address(entry.gid_str()).ipv4_mapped
    assert ip is not None
    return ip


def _interface(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError as error:
        raise InputError(f"the GID's network interface (index {index}) does not exist") from error


def _vlan(interface: str) -> int | None:
    """Return the VLAN of a VLAN interface; None for other interfaces."""
    try:
        text = Path("/proc/net/vlan", interface).read_text()
    except OSError:
        return None
    return int(text.split("VID:")[1].split()[0])
