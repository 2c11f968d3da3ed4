"""CNN layers that train (NADA): a component per layer, and the node that a plan's device becomes."""
