"""Names of a program's objects for the control plane, and other values of annotations."""

from __future__ import annotations

from fanin.sim.switch.embedded import ast
from fanin.sim.switch.embedded.lexer import integer


def control_name(node: ast.Declaration) -> str:
    """Return the name in ``@name``, or the declared one."""
    return annotated_name(node.annotations) or node.name


def annotated_name(annotations: ast.Annotations) -> str | None:
    """Return the value of ``@name``, if it is present."""
    body = annotations.get("name")
    return body[0].text[1:-1] if body and body[0].type == "STRING" else None


def annotated_id(annotations: ast.Annotations) -> int | None:
    """Return the value of ``@id``, if it is present."""
    body = annotations.get("id")
    return integer(body[0])[0] if body and body[0].type == "INT" else None


def annotated_words(annotations: ast.Annotations) -> dict[str, str]:
    """Return the values of annotations of one word, by name; texts lose their quotes."""
    return {name: body[0].text.strip('"') for name, body in annotations.items() if len(body) == 1}


def translation(annotations: ast.Annotations) -> tuple[str, int | None] | None:
    """Return the value of ``@p4runtime_translation``: a URI and a width, which is None for a string."""
    body = annotations.get("p4runtime_translation")
    if not body:
        return None
    widths = [integer(token)[0] for token in body if token.type == "INT"]
    return body[0].text[1:-1], widths[0] if widths else None


def key_name(node: ast.Expression) -> str:
    """Return the name of a table's key: the text of its expression, as in p4c's P4Info."""
    if isinstance(node, ast.Name):
        return node.name
    if isinstance(node, ast.Member):
        field = _field(node)  # with a leading dot it is the whole name
        return field[1:] if field.startswith(".") else f"{key_name(node.base)}.{field}"
    if isinstance(node, ast.Index):
        index = node.index.constant
        return f"{key_name(node.base)}[{key_name(node.index) if index is None else index}]"
    if isinstance(node, ast.Slice):
        return f"{key_name(node.base)}[{node.bounds[0]}:{node.bounds[1]}]"
    if isinstance(node, ast.Call) and isinstance(node.function, ast.Member):
        name = "$valid$" if node.function.name == "isValid" else f"{node.function.name}()"  # as in P4Info
        return f"{key_name(node.function.base)}.{name}"
    if isinstance(node, ast.Cast):
        return key_name(node.operand)
    if isinstance(node, ast.Binary) and node.operator == "&" and isinstance(node.right.constant, int):
        return f"{key_name(node.left)} & {node.right.constant:#x}"
    return "key"


def _field(node: ast.Member) -> str:
    """Return a member's name, or the value of ``@name`` at its declaration."""
    declared = getattr(getattr(node.base.type, "declaration", None), "fields", [])
    return next((control_name(field) for field in declared if field.name == node.name), node.name)
