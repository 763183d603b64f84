"""The synchronous library, generated from the asynchronous one. `make sync` writes it to src/fairlead/sync.py."""

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fairlead"
COMMITTED = SOURCE / "sync.py"
# The modules of the handles, in an order in which none is named before it is defined; and of Fairlead with its bases.
HANDLES = {"EnqueuedJob": "client", "WorkflowRun": "workflows", "JobFunction": "client", "JobLease": "leases"}
FAIRLEAD = {
    "Fairlead": "app",
    "Client": "client",
    "Approvals": "approvals",
    "Jobs": "jobs",
    "Triggers": "triggers",
    "Workflows": "workflows",
}
BY_HAND = {"open", "close", "work", "__aenter__", "__aexit__"}  # SyncClient has them
ONLY_ASYNCHRONOUS = {
    "as_job",
    "cells",
    "database",
    "transaction",
}  # for them there are fl.inner and fl.wait
HEAD = '''"""The synchronous Fairlead: the names of `fairlead`, without await.

Generated from src/fairlead/library by `make sync`: change it there.
"""
# fmt: off
# ruff: noqa: A002
'''
PUBLIC = ", ".join(f'"{name}"' for name in sorted([*HANDLES, "Fairlead"]))
LONGEST_LINE = 110
Method = ast.FunctionDef | ast.AsyncFunctionDef


def generate() -> str:
    """The text of src/fairlead/sync.py."""
    paths = (SOURCE / "library" / f"{name}.py" for name in ("synchronous", "leases", *FAIRLEAD.values()))
    trees = {path.stem: ast.parse(path.read_text("utf-8")) for path in paths}
    lines = [line for name, module in HANDLES.items() for line in _handle(trees[module], name, module)]
    lines += ["\n\nclass Fairlead(SyncClient):", *_doc(_class(trees["app"], "Fairlead"), 4)]
    for name, module in FAIRLEAD.items():
        for method in _methods(_class(trees[module], name)):
            if method.name != "__init__" and method.name not in BY_HAND | ONLY_ASYNCHRONOUS:
                lines += _twin(method, "self")
            elif method.name == "__init__" and name == "Fairlead":
                lines += ["", *_signature(method)]
                lines.append(f"        super().__init__(app.Fairlead({_arguments(method)}))")
    body = "\n".join(lines) + "\n"
    return f"{HEAD}\n{_imports(trees, body)}\n__all__ = [{PUBLIC}]\n{body}"


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)


def _methods(kind: ast.ClassDef) -> Iterator[Method]:
    dunders = ("__init__", "__call__", "__aenter__", "__aexit__")
    for one in kind.body:
        if isinstance(one, Method) and (one.name in dunders or not one.name.startswith("_")):
            yield one


def _handle(tree: ast.Module, name: str, module: str) -> Iterator[str]:
    kind = _class(tree, name)
    generic = "[P, R]" if kind.bases else ""
    inner = f"{module}.{name}{generic}"
    yield from (f"\n\nclass {name}(Handle[{inner}]{generic and f', Generic{generic}'}):", *_doc(kind, 4))
    for method in _methods(kind):
        if method.name != "__init__":
            yield from _twin(method, "self._fl")
            continue
        set_here = re.findall(r"self\.(\w+)(?:: [^=]+)? = ", ast.unparse(method))
        fields = [one for one in set_here if not one.startswith("_") or one.endswith("__")]
        if any("__slots__ =" in ast.unparse(one) for one in kind.body):
            yield f"\n    __slots__ = {tuple(sorted(fields))}".replace("'", '"')
        yield f"\n    def __init__(self, fl: SyncClient, inner: {inner}) -> None:"
        yield "        super().__init__(fl, inner)"
        yield from (f"        self.{field} = inner.{field}" for field in fields)


def _twin(method: Method, fl: str) -> Iterator[str]:
    """The same method without await."""
    decorators = [*map(_code, method.decorator_list)]
    yield from ("", *(f"    @{one}" for one in decorators), *_signature(method))
    if "overload" in decorators:
        return
    yield from _doc(method, 8)
    call = "self.inner" if method.name == "__call__" else f"self.inner.{method.name}"
    call += "" if "property" in decorators else f"({_arguments(method)})"
    if isinstance(method, ast.AsyncFunctionDef):
        takes_tx = "tx" in {one.arg for one in method.args.kwonlyargs}
        call = f"wait_or_join({fl}, {call}, tx)" if takes_tx else f"{fl}.wait({call})"
    for line in _body(method, call, fl):
        yield from _wrap(line, 8)


def _body(method: Method, call: str, fl: str) -> list[str]:
    returns = _code(method.returns)
    handle = returns.strip('"').removeprefix("list[").rstrip("]").partition("[")[0]
    decorate = f"return lambda function: JobFunction({fl}, made(unwrap(function)))"
    if method.name == "job":  # a decorator, or what it decorated
        wrap = ["if function is not None:", f"    return JobFunction({fl}, made)"]
        return [f"made: Any = {call}", *wrap, decorate]
    if returns == "Callable[[Callable[P, R]], JobFunction[P, R]]":
        return [f"made = {call}", decorate]
    if handle in HANDLES and returns.startswith("list"):
        return [f"return [{handle}({fl}, one) for one in {call}]"]
    if handle in HANDLES:
        return [f"return {handle}({fl}, {call})"]
    return ["return self" if returns == "Self" else call if returns == "None" else f"return {call}"]


def _signature(method: Method) -> list[str]:
    name = method.name.replace("__a", "__")
    end = ": ..." if "overload" in map(_code, method.decorator_list) else ":"
    text = f"def {name}({_code(method.args).replace('=', ' = ')}) -> {_code(method.returns)}{end}"
    # a line is broken only after a comma: \0 is a space that stays
    return [line.replace("\0", " ") for line in _wrap(text.replace(" ", "\0").replace(",\0", ", "), 4)]


def _arguments(method: Method) -> str:
    given = method.args
    names = [one.arg for one in (*given.posonlyargs, *given.args) if one.arg != "self"]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [f"{one.arg}={one.arg}" for one in given.kwonlyargs]
    return ", ".join(names + ([f"**{given.kwarg.arg}"] if given.kwarg else []))


def _doc(of: Method | ast.ClassDef, indent: int) -> list[str]:
    """The first line of its docstring."""
    text = (ast.get_docstring(of) or "").partition("\n")[0]
    return [f'{" " * indent}"""{text}"""'] if text else []


def _wrap(text: str, indent: int) -> list[str]:
    first, more = " " * indent, " " * (indent + 8)
    return textwrap.wrap(
        text, LONGEST_LINE, initial_indent=first, subsequent_indent=more, break_long_words=False
    )


def _code(node: ast.AST | None) -> str:
    return "None" if node is None else ast.unparse(node).replace("'", '"')


def _imports(trees: dict[str, ast.Module], body: str) -> str:
    """Imports of the names that the text uses, from where the asynchronous modules have them."""
    tree = ast.parse(body)
    used = {one.id for part in (tree, *_quoted(tree)) for one in ast.walk(part) if isinstance(one, ast.Name)}
    used -= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)} | {*HANDLES, "Fairlead"}
    places = dict.fromkeys(trees, "fairlead.library")
    for module, there in trees.items():
        for one in there.body:
            if isinstance(one, ast.ImportFrom):
                places = {name.name: str(one.module) for name in one.names} | places
            elif isinstance(one, ast.Assign):
                places[ast.unparse(one.targets[0])] = f"fairlead.library.{module}"
            elif isinstance(one, ast.ClassDef | ast.FunctionDef):
                places[one.name] = f"fairlead.library.{module}"
    found = {places[name] for name in used & places.keys()}
    lines = ""
    for place in sorted(found, key=lambda place: (place.startswith("fairlead"), place)):
        names = sorted(name for name in used if places.get(name) == place)
        lines += "\n" if place.startswith("fairlead") and "from fairlead" not in lines else ""
        line = f"from {place} import {', '.join(names)}\n"
        if len(line) > LONGEST_LINE:
            line = "".join((f"from {place} import (\n", *(f"    {name},\n" for name in names), ")\n"))
        lines += line
    return lines


def _quoted(tree: ast.Module) -> Iterator[ast.AST]:
    """The annotations of parameters that are strings."""
    for one in ast.walk(tree):
        if isinstance(one, ast.arg) and isinstance(one.annotation, ast.Constant):
            yield ast.parse(str(one.annotation.value), mode="eval")


if __name__ == "__main__":
    COMMITTED.write_text(generate(), encoding="utf-8")
