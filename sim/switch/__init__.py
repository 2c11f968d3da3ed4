"""Switches with one interface: :class:`fanin.sim.switch.base.Switch`."""
