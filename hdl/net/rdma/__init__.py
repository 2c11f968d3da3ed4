"""The NIC of one-sided writes: docs/rdma.md."""
