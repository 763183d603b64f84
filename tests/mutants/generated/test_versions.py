"""Each stored function has wrong versions, and a reason for each that is known to survive. `make mutants ARGS="--generated"` runs them."""

from tests.mutants.generated.rules import list_changes
from tests.mutants.generated.versions import (
    count_versions,
    list_names,
    list_sources,
    list_versions,
    read_equivalent,
)
from tests.tables import each_case


def test_each_function_has_wrong_versions() -> None:
    few = []
    for function, source in list_sources().items():
        versions = list_versions(function, source)
        known = sum(1 for one in versions if one.name in read_equivalent())
        if len(versions) - known < count_versions(source):
            few.append(function)

    assert few == []


def test_what_is_expected_to_survive_is_still_a_version() -> None:
    assert set(read_equivalent()).difference(list_names()) == set()


SOURCE = """
create function f(x int) returns int language plpgsql as $$
-- a comment has no conditions where a and b
begin
    {}
end
$$;
revoke execute on function f from public where a and b;
"""


@each_case(
    ("statement", "changed"),
    [
        ("select 1 from t where t.a and t.b or t.c;", "select 1 from t where true and t.b or t.c;"),
        (
            "select 1 from t where t.a < 1 and t.b between 1 and 2;",
            "select 1 from t where t.a <= 1 and t.b between 1 and 2;",
        ),
        ("select 1 from t where t.a = any(x);", "select 1 from t where t.a <> all(x);"),
        ("if a and (b or c) then return; end if;", "if false then return; end if;"),
        ("select 1 from t order by t.a, (t.b, t.c) limit 1;", "select 1 from t limit 1;"),
        ("select 1 from t for update skip locked;", "select 1 from t;"),
        ("select 1 from t for update skip locked;", "select 1 from t for update;"),
        ("x := coalesce(a, (b, c), d);", "x := coalesce((b, c), d);"),
        ("x := coalesce(a, b);", "x := (b);"),
        ("x := least(a, b);", "x := greatest(a, b);"),
        ("perform g(';');", "null;"),
        ("if not found then return; end if;", "if found then return; end if;"),
        ("raise exception 'it is not';", "null;"),
        ("x := case when a is null and b then c end;", "x := case when a is null and true then c end;"),
    ],
)
def test_a_rule_changes_one_place_of_the_body(statement: str, changed: str) -> None:
    source = SOURCE.format(statement)

    texts = [f"{source[: one.start]}{one.new}{source[one.end :]}" for one in list_changes(source)]

    assert SOURCE.format(changed) in texts
    assert all(text.startswith(source.partition("begin\n")[0]) for text in texts)
    assert all(text.endswith(source.rpartition("end\n$$")[2]) for text in texts)


def test_other_changes_of_the_source_leave_the_names_alone() -> None:
    source = SOURCE.format("select 1 from t where t.a and t.b;")
    longer = source.replace("begin\n", "begin\n    perform g();\n\n    perform h();\n\n")

    names = {one.name for one in list_versions("f", source) if one.rule == "condition"}

    assert names
    assert names <= {one.name for one in list_versions("f", longer)}
