"""The host's side: drivers of the registers that hardware declares."""
