"""fanin: generate and co-simulate the hardware and switch program of a distributed-training system."""

import time

__version__ = "0.1.0"
LOADED = (
    time.time()
)  #: when this process began to load fanin: a source of a later date may be another than runs
