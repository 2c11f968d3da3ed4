"""PyTorch: hooks that give a training the ring NIC's bits."""
