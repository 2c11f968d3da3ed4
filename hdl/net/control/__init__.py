"""Network services of a board beside its node: ARP, echo, and control of registers and memories over UDP."""
