"""The asynchronous parameter server: gradients that arrive in memory update the model, which goes back."""
