"""Models: the model language, ONNX, graphs, and the models that fanin ships."""
