"""NIC for one-sided writes: docs/systems/rdma.md."""
