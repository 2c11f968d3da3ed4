"""The `fanin` command."""
