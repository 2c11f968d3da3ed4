"""Models that ship with fanin, in the model language."""
