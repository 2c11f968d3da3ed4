"""A real BMv2, ``simple_switch_grpc``, as the simulation's switch (docs/reference/bmv2.md)."""
