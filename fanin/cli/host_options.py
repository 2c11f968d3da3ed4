"""Options of a network between hosts, whose software moves the frames."""

from fanin.sim.network import LinkConfig

HOST_OPTIONS = (
    ("--host-ns", LinkConfig.host_ns, "N", "what a host's software takes for a frame, each way"),
    ("--host-jitter-ns", LinkConfig.host_jitter_ns, "N", "mean of what that takes longer, at random"),
    (
        "--frame-bytes",
        LinkConfig.frame_bytes,
        "N",
        "a frame takes the wire as long as one of N bytes, at least",
    ),
)
