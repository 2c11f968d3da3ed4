"""Models: the language, ONNX, graphs, and those that fanin ships."""
