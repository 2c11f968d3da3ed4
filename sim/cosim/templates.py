"""Templates of generated sources, which lie beside the modules that fill them."""

from importlib.resources import files

import jinja2


def template(name: str) -> jinja2.Template:
    """Return the template of a file name; a missing variable is an error."""
    text = (files("fanin.sim.cosim") / name).read_text()
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(text)
