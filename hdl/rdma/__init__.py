"""The NIC of one-sided writes: docs/systems/rdma.md."""
