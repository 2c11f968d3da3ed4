"""Host driver of an RDMA NIC, in any node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.hdl.bus.register_map import RegisterMap
from fanin.hdl.rdma.registers import TIMEOUT
from fanin.host.driver import BaseDriver, Batch, Value
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, RdmaConfig, Refusal, Region
from fanin.wire.ethernet import TCI, Endpoint
from fanin.wire.fields import pack_fields
from fanin.wire.rdma import PATH_MTUS


class NicDriver(BaseDriver):
    """Makes batches of register accesses for a node of ``config`` with ``registers`` that start at ``base``.

    Run ``identify`` and ``configure`` first. Then connect each queue pair before its peer sends the first
    packet. A queue pair that was connected before must first be disconnected. Both ends then choose a new
    ``send_psn`` by :func:`fanin.rdma.facts.next_psn`, so that late packets of the old connection are not
    accepted.
    """

    def __init__(
        self, config: RdmaConfig, registers: RegisterMap, constants: Mapping[str, int], *, base: int = 0
    ):
        super().__init__(registers, constants, base=base)
        self.config = config

    def configure(self, own: Endpoint, *, timeout: int = TIMEOUT) -> Batch:
        """Set the node's addresses, and its timeout in cycles; ``own.port`` is not used."""
        if not 1 <= timeout < 1 << 32:
            raise ValueError(f"timeout must be 1 to {(1 << 32) - 1} cycles, not {timeout!r}")
        batch = self.batch().write("own_mac", own.mac).write("own_ip", own.ip)
        return batch.write("timeout", timeout)

    def connect(self, index: int, connection: Connection, peer: Endpoint) -> Batch:
        """Connect the queue pair at ``index`` with number ``connection.peer`` at ``peer``.

        The command is complete when the field ``connecting`` of ``status`` and the field ``connect_refusal`` of
        ``refusals`` are 0. ``peer.port`` is the UDP source port of all the queue pair's packets. Raises
        ValueError for a VLAN if the node has no tags.
        """
        self._check_index(index)
        marks = {"traffic_class": connection.traffic_class}
        if self.config.vlan:
            tci = {"priority": connection.priority, "vlan": connection.vlan or 0}
            tci_value = int.from_bytes(pack_fields(TCI, tci), "big")
            marks |= {"tag_present": connection.vlan is not None, "tag_tci": tci_value}
        elif connection.vlan is not None:
            raise ValueError(f"vlan {connection.vlan}: this node has no tags (RdmaConfig.vlan)")
        batch = self.batch().write(
            "pair",
            pair_index=index,
            pair_enable=1,
            mtu=PATH_MTUS.index(connection.mtu),
            window=connection.window.bit_length() - 1,
            retries=connection.retries,
        )
        batch.write("peer_number", connection.peer).write("peer_mac", peer.mac).write("peer_ip", peer.ip)
        batch.write("source_port", peer.port).write("marks", **marks)
        batch.write("send_psn", connection.send_psn)
        return batch.write("receive_psn", connection.receive_psn).write("control", connect=1)

    def disconnect(self, index: int) -> Batch:
        """End the queue pair at ``index``; its unfinished writes complete as flushed.

        When the field ``connecting`` of ``status`` is 0, the queue pair no longer accesses memory, and
        ``ended_psn`` has the number for :func:`fanin.rdma.facts.next_psn`.
        """
        self._check_index(index)
        batch = self.batch().write("pair", pair_index=index, pair_enable=0, mtu=0, window=0, retries=0)
        return batch.write("control", connect=1)

    def refusals(self) -> Batch:
        """Read whether the last ``connect`` and the last ``set_region`` were refused."""
        return self.batch().read("refusals")

    @staticmethod
    def check_refusals(values: Sequence[Value]) -> None:
        """Raise ValueError that names command and cause if one of them was refused."""
        (word,) = values
        assert isinstance(word, dict)
        from fanin.host.causes import cause_of  # of all nodes: only once something was refused

        for command, field in ("connect", "connect_refusal"), ("set_region", "region_refusal"):
            if word[field]:
                raise ValueError(f"{command} was refused: {cause_of(Refusal(word[field]))}")

    def _check_index(self, index: int) -> None:
        if index not in range(self.config.queue_pairs):
            raise ValueError(f"index must be 0 to {self.config.queue_pairs - 1}, not {index!r}")

    def set_regions(self, regions: Sequence[Region]) -> Batch:
        """Replace all regions by these. Raises ValueError for invalid regions.

        Their ``queue_pairs`` are numbers, from ``FIRST_QUEUE_PAIR`` on.
        """
        self.config.check_regions(regions)
        batch = self.batch()
        for index in range(self.config.regions):
            if index >= len(regions):
                batch.write("region", region_index=index, region_enable=0).write("control", set_region=1)
                continue
            region = regions[index]
            pairs = 0
            for number in region.queue_pairs if region.writable else ():
                self._check_index(number - FIRST_QUEUE_PAIR)
                pairs |= 1 << number - FIRST_QUEUE_PAIR
            batch.write("region", region_index=index, region_enable=1)
            batch.write("region_key", region.rkey).write("region_base", region.base)
            batch.write("region_limit", region.base + region.length).write("region_pairs", pairs)
            batch.write("control", set_region=1)
        return batch
