"""A board's services beside its node: ARP, echo, and control of registers and memories over UDP."""
