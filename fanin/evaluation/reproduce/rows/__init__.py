"""The rows of the five papers, a module for each."""

from __future__ import annotations

from fanin.evaluation.reproduce.row import Paper
from fanin.evaluation.reproduce.rows import inceptionn, nada, p4sgd, rdma_wild, smart_nic

PAPERS: tuple[Paper, ...] = (
    p4sgd.PAPER,
    inceptionn.PAPER,
    smart_nic.PAPER,
    rdma_wild.PAPER,
    nada.PAPER,
)
