"""SDR SDRAM as the memory of a node on a board: litedram's controller, and what stands around it."""
