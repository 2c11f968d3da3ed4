"""The host's side: drivers of the registers that hardware declares, sockets, Linux interfaces."""

from fanin.host.sockets import compressed

__all__ = ["compressed"]
