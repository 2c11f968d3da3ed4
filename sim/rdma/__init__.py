"""One-sided writes between simulated nodes."""
