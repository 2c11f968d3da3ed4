"""What runs: golden models, switches, links, the co-simulation and its reports."""
