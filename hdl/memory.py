"""What can be said of a memory besides its shape."""

#: Attributes of a memory no word of which is read, and used, in the cycle in which it is written. Synthesis
#: would otherwise add registers and multiplexers where block RAM does not read the old word then.
NEVER_READ_AS_WRITTEN = {"no_rw_check": 1}

#: Those of a memory that is to be block RAM, however few words it has: of a small device LUTs run out first.
BLOCK_RAM = {"ram_style": "block"}
