# SPDX-License-Identifier: BSD-3-Clause
"""No iteration over sets in the core: their order changes from process to process.

A best effort without types: what is written as a set, annotated as one, or assigned from
one. Where the order cannot show (``sorted(...)``, ``any(...)``, a set again) it is allowed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .tree import Source

TYPES = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
ALGEBRA = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
ORDERED = frozenset(
    {"list", "tuple", "enumerate", "iter", "map", "filter", "zip", "dict", "sum", "join", "extend"}
)
ORDERLESS = frozenset(
    {"sorted", "set", "frozenset", "any", "all", "len", "min", "max", "union", "update"}
)


@dataclass(frozen=True)
class Known:
    """Names and attributes that hold sets."""

    names: frozenset[str]
    attributes: frozenset[str]

    def is_set(self, node: ast.AST | None) -> bool:
        """Whether an expression is known to be a set."""
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=name):
                return name in self.attributes
            case ast.Call(func=ast.Name(id=name)):
                return name in {"set", "frozenset"}
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in METHODS
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, ALGEBRA):
                return any(self.is_set(side) or _is_view(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=orelse):
                return self.is_set(body) or self.is_set(orelse)
            case ast.NamedExpr(value=value):
                return self.is_set(value)
        return False


def _is_view(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"keys", "items"}


def _is_set_type(node: ast.AST | None) -> bool:
    if isinstance(node, ast.Subscript):
        node = node.value
    return getattr(node, "id", getattr(node, "attr", "")) in TYPES


def _assigned(scope: ast.AST, known: Known) -> Iterator[str]:
    """Names in a scope that are annotated as sets, or assigned from one."""
    for node in ast.walk(scope):
        match node:
            case ast.arg(arg=name, annotation=kind) if _is_set_type(kind):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if _is_set_type(kind):
                yield name
            case ast.Assign(targets=targets, value=value) if known.is_set(value):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.NamedExpr(target=ast.Name(id=name), value=value) if known.is_set(value):
                yield name


def _attributes(core: Sequence[Source]) -> frozenset[str]:
    """Fields of classes, and properties, that are sets."""
    classes = (n for s in core for n in ast.walk(s.tree) if isinstance(n, ast.ClassDef))
    found = set()
    for node in (child for body in classes for child in body.body):
        if isinstance(node, ast.AnnAssign) and _is_set_type(node.annotation):
            found.add(getattr(node.target, "id", ""))
        elif isinstance(node, ast.FunctionDef) and _is_set_type(node.returns):
            found.add(node.name)
    return frozenset(found)


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from node.body
        else:
            yield node


def set_iteration(core: Sequence[Source]) -> list[str]:
    """Places in the core where the order of a set decides."""
    known = Known(frozenset(), _attributes(core))
    constants: list[ast.stmt] = [
        node
        for source in core
        for node in source.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
    ]
    known = Known(frozenset(_assigned(ast.Module(constants, []), known)), known.attributes)
    return [
        source.at(node, f"iterates over a set: {ast.unparse(node)[:60]}")
        for source in core
        for scope in _scopes(source.tree)
        for node in _iterated(scope, _with_locals(scope, known))
    ]


def _with_locals(scope: ast.AST, known: Known) -> Known:
    # Twice, since a set may be assigned from a name that is only now known to be one.
    for _ in range(2):
        known = Known(known.names.union(_assigned(scope, known)), known.attributes)
    return known


def _iterated(scope: ast.AST, known: Known) -> Iterator[ast.AST]:
    orderless = {id(arg) for call in ast.walk(scope) for arg in _orderless_arguments(call)}
    for node in ast.walk(scope):
        if any(known.is_set(value) for value in _walked(node)) and id(node) not in orderless:
            yield node


def _orderless_arguments(node: ast.AST) -> list[ast.expr]:
    if not isinstance(node, ast.Call) or any(word.arg == "key" for word in node.keywords):
        # A key makes ties, and ties keep the order they came in.
        return []
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return list(node.args) if called in ORDERLESS else []


def _walked(node: ast.AST) -> list[ast.expr]:
    """What a node walks through in an order that shows."""
    match node:
        case ast.For(iter=walked) | ast.YieldFrom(value=walked):
            return [walked]
        case ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
            return [generator.iter for generator in node.generators]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [element.value for element in elements if isinstance(element, ast.Starred)]
        case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
            return [value]
        case ast.Call():
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            keyed = any(word.arg == "key" for word in node.keywords)
            spread = [arg.value for arg in node.args if isinstance(arg, ast.Starred)]
            ordered = called in ORDERED or (keyed and called in {"sorted", "min", "max"})
            return [*node.args, *spread] if ordered else spread if called not in ORDERLESS else []
    return []
