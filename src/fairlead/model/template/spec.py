"""A template: JSON whose strings may have placeholders, `{{path}}`. Look-up only: no expressions, no code."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import jsonschema_rs
import msgspec

from fairlead.errors import Fault, PayloadNotJson, PayloadTooDeep, PayloadTooLarge, TemplateInvalid
from fairlead.model.definition import MAX_FAULTS, compile_schema, describe_schema_error
from fairlead.model.payload import encode, json_pointer
from fairlead.model.template.path import Flaw, Path
from fairlead.model.template.placeholder import OPEN, Placeholder, TemplateText, parse_template_string
from fairlead.model.template.rendering import EncodedValues, Where, render_tree

MAX_PLACES = 1_000
MAX_DEPTH = 64
MAX_BYTES = 262_144

_NULL = len(b"null")
_Kind = jsonschema_rs.ValidationErrorKind
# faults of an object or list that no value inside it can correct
_OF_SHAPE = (
    _Kind.Type,
    _Kind.Required,
    _Kind.AdditionalProperties,
    _Kind.PropertyNames,
    _Kind.MinProperties,
    _Kind.MaxProperties,
    _Kind.MinItems,
    _Kind.MaxItems,
)
_CONDITIONAL = {"then", "else"}
_NAMING = {"properties", "patternProperties", "dependentSchemas"}


class Template(msgspec.Struct, frozen=True):
    """A parsed template. `compiled` creates it; it is immutable and can be rendered many times."""

    # JSON with Place objects for values, and Text objects for strings
    tree: Any
    paths: tuple[Path, ...]
    literal_bytes: int

    def render(
        self, context: Mapping[str, Any], *, max_bytes: int, encoded: EncodedValues | None = None
    ) -> Any:
        """Fill the template from plain JSON values; TemplateFailed if a value is missing or `max_bytes` is exceeded.

        The result shares nothing with the context, the template or another result. Several renderings of the same
        values share what was `encoded`.
        """
        return render_tree(
            self.tree,
            dict(context),
            literal_bytes=self.literal_bytes,
            max_bytes=max_bytes,
            encoded=EncodedValues() if encoded is None else encoded,
        )


def compile_template(template: Any, roots: Collection[str]) -> Template:
    """Parse a template; TemplateInvalid has the path of each fault."""
    reading = _TemplateReader(tuple(roots))
    tree = reading.node(_copy_json(template), ())
    if reading.faults:
        raise _invalid(reading.faults)
    exact = sum(type(node) is Placeholder for _, node in iterate_leaves(tree))
    literal_bytes = len(msgspec.json.encode(outline(tree))) - _NULL * exact
    return Template(tree, tuple(dict.fromkeys(reading.paths)), literal_bytes)


def outline(tree: Any) -> Any:
    """The literal parts of a template: null for a placeholder, and strings without their placeholders."""
    match tree:
        case dict():
            return {key: outline(item) for key, item in tree.items()}
        case list():
            return [outline(item) for item in tree]
        case Placeholder():
            return None
        case TemplateText():
            return tree.literal
    return tree


def iterate_leaves(tree: Any, where: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Every value in a template that is not an object or a list, with its path."""
    if type(tree) is dict or type(tree) is list:
        for key, item in tree.items() if type(tree) is dict else enumerate(tree):
            yield from iterate_leaves(item, (*where, key))
    else:
        yield where, tree


def find_template_faults(template: Template, arg_schema: Any) -> list[Fault]:
    """The faults against a definition's schema that are certain before the template is filled."""
    whole = outline(template.tree)
    if type(whole) is not dict and type(template.tree) is not Placeholder:
        return [Fault("", "must be an object")]
    around = _PlaceholderMap(template.tree)
    faults = (
        Fault(json_pointer(error.instance_path), describe_schema_error(error))
        for error in compile_schema(arg_schema).errors(whole)
        if around.is_certain(error)
    )
    return list(islice(faults, MAX_FAULTS))


class _PlaceholderMap:
    """The positions of a template's placeholders: a fault there may disappear when they are filled."""

    def __init__(self, tree: Any) -> None:
        nodes = dict(iterate_leaves(tree))
        self.exact = {where for where, node in nodes.items() if type(node) is Placeholder}
        self.texts = {where for where, node in nodes.items() if type(node) is TemplateText}
        filled_in = self.exact | self.texts
        self.above = {where[:depth] for where in filled_in for depth in range(len(where))}

    def is_certain(self, error: jsonschema_rs.ValidationError) -> bool:
        """Whether the fault remains, whatever values fill the placeholders."""
        where = tuple(error.instance_path)
        if where in self.exact:
            return False
        if self.above and _CONDITIONAL.intersection(_keywords(error.evaluation_path)):
            return False
        if where in self.texts:
            return isinstance(error.kind, _Kind.Type)
        return where not in self.above or isinstance(error.kind, _OF_SHAPE)


def _keywords(path: Iterable[str | int]) -> Iterator[str | int]:
    """The keywords in the path of a subschema, without the names of properties."""
    steps = iter(path)
    for step in steps:
        yield step
        if step in _NAMING:
            next(steps, None)


class _TemplateReader:
    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = roots
        self.paths: list[Path] = []
        self.faults: list[Fault] = []

    def node(self, value: Any, where: Where) -> Any:
        if type(value) is dict:
            return {key: self.item(key, item, where) for key, item in value.items()}
        if type(value) is list:
            return [self.node(item, (*where, index)) for index, item in enumerate(value)]
        if type(value) is not str or OPEN not in value:
            return value
        try:
            return self.string(value)
        except Flaw as flaw:
            self.refuse(where, flaw.message)

    def item(self, key: str, value: Any, where: Where) -> Any:
        if OPEN in key:
            self.refuse((*where, key), "a key cannot have {{: only values can have placeholders")
        return self.node(value, (*where, key))

    def string(self, value: str) -> Any:
        match parse_template_string(value):
            case Placeholder() as place:
                self.check(place)
                return place
            case TemplateText() as text:
                for place in text.places:
                    self.check(place)
                    if place.default is None or isinstance(place.default, dict | list):
                        raise Flaw(f"the default of {place.path} must be text, a number, true or false here")
                return text
            case str() as literal:
                return literal

    def check(self, place: Placeholder) -> None:
        if place.path.segments[0] not in self.roots:
            raise Flaw(f"{place.path} begins with none of {', '.join(self.roots)}")
        self.paths.append(place.path)
        if len(self.paths) > MAX_PLACES:
            raise Flaw(f"a template has at most {MAX_PLACES} placeholders")

    def refuse(self, where: Where, message: str) -> None:
        self.faults.append(Fault(json_pointer(where), message))
        if len(self.faults) == MAX_FAULTS:
            raise _invalid(self.faults)


def _copy_json(template: Any) -> Any:
    """A copy of the template in plain JSON."""
    try:
        return msgspec.json.decode(encode(template, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)[1])
    except (PayloadNotJson, PayloadTooDeep, PayloadTooLarge) as error:
        raise _invalid(error.faults) from None


def _invalid(faults: Sequence[Fault]) -> TemplateInvalid:
    first = faults[0]
    return TemplateInvalid(f"The template is not valid: {first.path or '/'}: {first.message}.", faults)
