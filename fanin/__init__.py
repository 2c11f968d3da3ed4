"""fanin: generate and co-simulate the hardware and switch program of a distributed-training system."""

__version__ = "0.1.0"
