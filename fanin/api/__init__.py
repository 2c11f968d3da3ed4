"""What ``import fanin`` gives, a module per thing that a user does (docs/reference/python.md)."""
