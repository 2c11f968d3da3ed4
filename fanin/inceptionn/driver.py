"""The host's side of an INCEPTIONN NIC: its codec's settings and its counters."""

from __future__ import annotations

from fanin.codec.facts import Inceptionn
from fanin.hdl.codec.nic.registers import IDENTITY, VERSION, nic_registers
from fanin.host.driver import BaseDriver, Batch


class InceptionnDriver(BaseDriver):
    """Batches of register accesses for a NIC whose registers lie at ``base``."""

    def __init__(self, *, base: int = 0):
        super().__init__(nic_registers(), {"id": IDENTITY, "version": VERSION}, base=base)

    def configure(self, codec: Inceptionn | None) -> Batch:
        """Bound and mode; with None, all frames pass. Only while no packet with ToS 0x28 is inside."""
        used, on = codec or Inceptionn(), codec is not None
        return self.batch().write("settings", compress=on, decompress=on, mode=used.mode, bound=used.bound)
