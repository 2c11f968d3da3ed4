"""Functions of ``import fanin``, one module per task of a user (docs/reference/python.md)."""
