"""Asynchronous parameter server: applies workers' gradients from memory to the model and returns the model."""
