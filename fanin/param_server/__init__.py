"""The asynchronous parameter server (RDMA-wild): facts, golden model, driver, training, pages."""
