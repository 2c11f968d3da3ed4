"""What becomes gates."""
