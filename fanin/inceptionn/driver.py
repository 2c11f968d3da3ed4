"""Host driver of an INCEPTIONN NIC: settings of its codec, and its counters."""

from __future__ import annotations

from fanin.codec.facts import Inceptionn
from fanin.hdl.codec.nic.registers import IDENTITY, VERSION, nic_registers
from fanin.host.driver import BaseDriver, Batch


class InceptionnDriver(BaseDriver):
    """Makes batches of register accesses for a NIC whose registers start at address ``base``."""

    def __init__(self, *, base: int = 0):
        super().__init__(nic_registers(), {"id": IDENTITY, "version": VERSION}, base=base)

    def configure(self, codec: Inceptionn | None) -> Batch:
        """Set bound and mode, or let all frames pass (None), while the NIC has no packet with ToS 0x28."""
        settings, enabled = codec or Inceptionn(), codec is not None
        return self.batch().write(
            "settings", compress=enabled, decompress=enabled, mode=settings.mode, bound=settings.bound
        )
