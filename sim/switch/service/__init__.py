"""The embedded switch as a service: on Linux interfaces, with P4Runtime."""
