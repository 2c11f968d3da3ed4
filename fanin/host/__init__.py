"""Host side: drivers of registers that hardware declares, sockets, and Linux interfaces."""

from fanin.host.sockets import compressed

__all__ = ["compressed"]
