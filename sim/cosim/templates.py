"""Jinja templates of generated sources, in this folder."""

from importlib.resources import files

import jinja2


def template(name: str) -> jinja2.Template:
    """Return the template in the file ``name``; rendering it without one of its variables raises an error."""
    text = (files("fanin.sim.cosim") / name).read_text()
    return jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True).from_string(text)
