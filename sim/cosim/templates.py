"""Templates of what is generated for a simulation, beside the modules that fill them."""

from importlib.resources import files

import jinja2


def template(name: str) -> jinja2.Template:
    """The one of that file name; what it needs and does not get is an error."""
    text = (files("fanin.sim.cosim") / name).read_text()
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(text)
