"""The key that stands for a payload."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given as holds_for
from hypothesis import strategies as st

from fairlead import dedupe_key
from fairlead.errors import PayloadNotJson
from fairlead.model.dedupe import canonical_json
from tests.tables import each_case

values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdé"), inner, max_size=4),
    max_leaves=12,
)


@each_case(
    ("arguments", "key"),
    [
        (("sync-dropbox", "acme", {"b": 1, "a": "x"}), 'sync-dropbox::acme::{"a":"x","b":1}'),
        (("sync-dropbox", None, {}), "sync-dropbox::global::{}"),
        (("sync-dropbox", "acme", None), "sync-dropbox::acme::{}"),
        (("sync-dropbox", "acme"), "sync-dropbox::acme::{}"),
        (
            ("t", "o", {"z": {"y": [3, {"b": None, "a": True}]}, "é": "ü"}),
            't::o::{"z":{"y":[3,{"a":true,"b":null}]},"é":"ü"}',
        ),
        (
            ("t", "o", {"n": 1.0, "m": -0.0, "x": 1.5, "big": 1e22}),
            't::o::{"big":10000000000000000000000,"m":0,"n":1,"x":1.5}',
        ),
        (("t", "o", {"B": 1, "a": 2, "_": 3}), 't::o::{"B":1,"_":3,"a":2}'),
    ],
)
def test_a_key_has_exactly_this_form(arguments: tuple[Any, ...], key: str) -> None:
    assert dedupe_key(*arguments) == key


def shuffled(value: Any, chance: random.Random) -> Any:
    match value:
        case dict():
            items = [(name, shuffled(item, chance)) for name, item in value.items()]
            chance.shuffle(items)
            return dict(items)
        case list():
            return [shuffled(item, chance) for item in value]
        case int() if not isinstance(value, bool) and abs(value) < 2**53:
            return float(value)
    return value


@holds_for(values, st.randoms(use_true_random=False))
def test_order_and_the_writing_of_numbers_change_nothing(value: Any, chance: random.Random) -> None:
    assert canonical_json(shuffled(value, chance)) == canonical_json(value)


@holds_for(values, values)
def test_different_content_has_different_keys(one: Any, other: Any) -> None:
    if canonical_json(one) == canonical_json(other):
        # what the key says is what the payload says
        assert msgspec.json.decode(canonical_json(one)) == msgspec.json.decode(canonical_json(other))
    else:
        assert dedupe_key("t", "o", one) != dedupe_key("t", "o", other)


def test_the_order_of_a_list_is_content() -> None:
    assert dedupe_key("t", "o", {"a": [1, 2]}) != dedupe_key("t", "o", {"a": [2, 1]})


def test_true_is_not_one_and_text_is_not_a_number() -> None:
    assert len({dedupe_key("t", "o", {"a": value}) for value in (1, True, "1", None, [1], {"1": 1})}) == 6


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(PayloadNotJson):
        dedupe_key("t", "o", {"a": object()})
