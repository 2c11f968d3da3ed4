"""A standard NIC's end, over a stand-in of pyverbs: in what order it is asked, and for what."""

import socket
import sys
from types import SimpleNamespace

import pytest

from fanin.base.errors import InputError
from fanin.host.rdma_setup import End, negotiate
from fanin.host.rdma_verbs import VerbsPeer

NODE = End(0x100, 5, "::ffff:10.0.0.1", "02:00:00:00:00:01", 4096, rkey=7, address=4096, length=8192)
V2, V1 = 2, 1
PARTS = ("device", "pd", "cq", "mr", "qp", "addr", "wr", "enums", "pyverbs_error")


class PyverbsError(Exception):
    pass


class Made:
    """What pyverbs makes: keeps its arguments, and notes when it is closed."""

    def __init__(self, log, kind, args, named):
        self.__dict__ |= named
        self.log, self.kind, self.args = log, kind, args

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.log.append(("close", self.kind))

    def query_gid_table(self, most):
        index = socket.if_nametoindex("lo")
        rows = [("fe80::1", V2), ("::ffff:10.0.0.2", V1), ("::ffff:10.0.0.2", V2), ("::ffff:10.0.0.3", V2)]
        return [
            SimpleNamespace(
                gid_str=lambda gid=gid: gid, gid_type=kind, gid_index=n, port_num=1, ndev_ifindex=index
            )
            for n, (gid, kind) in enumerate(rows)
        ]

    def query_port(self, port):
        return SimpleNamespace(active_mtu=3)  # IBV_MTU_1024

    def to_rts(self, attributes):
        self.log.append(("rts", attributes))

    def post_send(self, request):
        self.log.append(("send", request))

    def post_recv(self, request):
        self.log.append(("receive", request))

    def set_wr_rdma(self, rkey, address):
        self.rdma = (rkey, address)

    def poll(self):
        return (1, [SimpleNamespace(wr_id=3, status=10)]) if self.done else (0, [])

    done = True
    buf, rkey, lkey, qp_num = 0x7F00_0000_1000, 0x1234, 0x1234, 0x45


@pytest.fixture
def log(monkeypatch):
    log = []

    def maker(kind):
        def make(*args, **named):
            if kind == "Context" and named["name"] != "rxe0":
                raise PyverbsError("Failed to open device\n no-such")
            made = Made(log, kind, args, named)
            log.append(("make", kind, made))
            return made

        return make

    names = {
        "device": ["Context"], "pd": ["PD"], "cq": ["CQ"], "mr": ["MR"],
        "qp": ["QP", "QPCap", "QPInitAttr", "QPAttr"], "addr": ["GID", "GlobalRoute", "AHAttr"],
        "wr": ["SGE", "SendWR", "RecvWR"],
    }  # fmt: skip
    parts = {part: SimpleNamespace(**{name: maker(name) for name in kinds}) for part, kinds in names.items()}
    parts["cq"].cqe_status_to_str = {10: "Remote access error"}.get
    parts["pyverbs_error"] = SimpleNamespace(PyverbsError=PyverbsError)
    parts["enums"] = SimpleNamespace(
        IBV_ACCESS_LOCAL_WRITE=1,
        IBV_ACCESS_REMOTE_WRITE=2,
        IBV_QPT_RC=2,
        IBV_WR_RDMA_WRITE=0,
        IBV_GID_TYPE_ROCE_V2=V2,
    )
    for part, module in parts.items():
        monkeypatch.setitem(sys.modules, f"pyverbs.{part}", module)
    monkeypatch.setitem(sys.modules, "pyverbs", SimpleNamespace())
    return log


def test_a_queue_pair_comes_to_rts_with_what_was_negotiated_and_writes(log):
    with VerbsPeer("rxe0", length=8192, psn=9) as peer:
        end = peer.end
        assert (end.queue_pair, end.gid, end.mtu, end.rkey, end.length, end.vlan) == (
            0x45, "::ffff:10.0.0.2", 1024, 0x1234, 8192, None,
        )  # fmt: skip
        assert End.from_json(end.to_json(), source="itself") == end
        connection = negotiate(
            End(**vars(end) | {"mac": "0c:42:a1:00:00:02"}), NODE, retries=6, traffic_class=104
        )
        peer.connect(connection, NODE)
        ((_, asked),) = [entry for entry in log if entry[0] == "rts"]
        assert (asked.path_mtu, asked.dest_qp_num, asked.rq_psn, asked.sq_psn) == (3, 0x100, 5, 9)
        assert (asked.retry_cnt, asked.ah_attr.is_global, asked.ah_attr.gr.sgid_index) == (6, 1, 2)
        assert asked.ah_attr.gr.traffic_class == 104
        assert asked.ah_attr.gr.dgid.args == ("0000:0000:0000:0000:0000:ffff:0a00:0001",)
        peer.await_immediate()
        peer.write(3, 100, 50, remote=NODE.address, rkey=NODE.rkey)
        ((_, request),) = [entry for entry in log if entry[0] == "send"]
        assert request.rdma == (7, 4096)
        assert request.sg[0].args == (0x7F00_0000_1000 + 100, 50, 0x1234)
        assert peer.completion() == (3, "remote access error")
    # what was made first is closed last, else rdma-core refuses
    assert [kind for what, kind in (entry[:2] for entry in log) if what == "close"] == [
        "QP", "CQ", "MR", "PD", "Context",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"device": "no-such"}, "no-such: Failed to open device no-such"),
        (
            {"gid_index": 0},
            r"rxe0: GID 0 is not one of RoCEv2 with an IPv4 address on port 1 \(2 10.0.0.2, 3 10.0.0.3\)",
        ),
        ({"port": 2}, r"rxe0: no GID of RoCEv2 with an IPv4 address on port 2 \(none\)"),
    ],
)
def test_a_device_that_will_not_do_is_refused_and_all_is_closed(log, options, why):
    with pytest.raises(InputError, match=why):
        VerbsPeer(**{"device": "rxe0", "length": 64, "psn": 0} | options)
    opened = [kind for what, kind in (entry[:2] for entry in log) if what == "make"]
    closed = [kind for what, kind in (entry[:2] for entry in log) if what == "close"]
    assert sorted(closed) == sorted(set(opened) & {"QP", "CQ", "MR", "PD", "Context"})


def test_no_completion_is_an_error_within_its_time(log, monkeypatch):
    monkeypatch.setattr(Made, "done", False)
    with (
        VerbsPeer("rxe0", length=64, psn=0) as peer,
        pytest.raises(InputError, match="rxe0: no completion"),
    ):
        peer.completion(timeout=0.01)


def test_without_pyverbs_it_says_what_is_missing(monkeypatch):
    for part in ("pyverbs", *(f"pyverbs.{part}" for part in PARTS)):
        monkeypatch.setitem(sys.modules, part, None)
    with pytest.raises(InputError, match=r"pyverbs is not installed .*Debian: python3-pyverbs"):
        VerbsPeer("rxe0", length=64, psn=0)
