"""``fanin cluster``: builds, training, states, exports."""
