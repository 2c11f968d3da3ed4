"""SDR SDRAM as the memory of a node on a board: litedram's controller and the logic around it."""
