"""Origins of figures: how a number came about, and from which inputs."""
