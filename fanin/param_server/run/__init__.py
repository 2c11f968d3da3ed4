"""``fanin ps train``: its options, the training, and the run's folder."""
