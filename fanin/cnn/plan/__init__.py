"""The command ``fanin plan``: options, search and output."""
