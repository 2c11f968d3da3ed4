"""PyTorch: hooks that give a training the ring NIC's bits, and a CNN's training in binary64 to compare with."""
