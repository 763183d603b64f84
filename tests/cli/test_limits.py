"""`fairlead limits`, and the limits of `fairlead definitions`, as a person and a script use them."""

import psycopg

from tests.cli.test_commands import Shell
from tests.tables import each_case

RATE = {"limit": 100, "per_seconds": 60, "burst": 20, "cost": None}


def test_rates_are_set_listed_and_removed(shell: Shell) -> None:
    assert "There are no rates" in shell("limits").output
    assert shell("limits", "set", "--rate", "100/min+20").output == "rate 100/min+20\n"
    assert shell.json("limits", "set", "--rate", "10/s", "--tenant", "acme")["rate"]["burst"] == 10
    shell("limits", "set", "--rate", "1/h", "--definition", "greet")
    shell("limits", "set", "--rate", "1/d", "--definition", "greet", "--each-tenant")
    items = shell.json("limits")["items"]
    assert [one["scope"] for one in items] == ["system", "tenant", "definition", "definition_tenant"]
    assert (items[0]["rate"], items[0]["tokens"]) == (RATE, 20)
    told = shell("limits").output
    for text in ("system", "acme", "100/min+20", "10/s+10", "1/h+1", "each tenant", "1/d+1"):
        assert text in told
    assert len(shell.json("limits", "--tenant", "umbrella")["items"]) == 3
    page = shell.json("limits", "--limit", "1")
    assert (
        shell.json("limits", "--limit", "1", "--cursor", page["next_cursor"])["items"][0]["tenant"] == "acme"
    )
    assert shell("limits", "set", "--no-rate").output == "no rate\n"
    assert shell.json("limits")["items"][0]["scope"] == "tenant"


@each_case(
    ("options", "told"),
    [
        ((), "Give --rate"),
        (("--rate", "1/s", "--no-rate"), "Give --rate"),
        (("--rate", "often"), "is not a rate"),
        (("--rate", "1/s", "--each-tenant"), "name the definition"),
        (("--rate", "1/s", "--tenant", "acme", "--definition", "greet"), "not both"),
    ],
)
def test_what_is_no_rate_is_refused_in_words(shell: Shell, options: tuple[str, ...], told: str) -> None:
    refused = shell("limits", "set", *options)
    assert refused.exit_code == 1
    assert told in refused.output
    assert shell.json("limits")["items"] == []


def test_limits_of_a_definition_are_changed_one_by_one(shell: Shell) -> None:
    made = shell.json("definitions", "put", "greet", "--rate", "100/min+20", "--rate-per-tenant", "1/s")
    assert (made["rate"], made["rate_per_tenant"]["limit"]) == (RATE, 1)
    made = shell.json(
        "definitions", "put", "greet", "--by-key", "/name", "--key-max-running", "2", "--key-fifo"
    )
    assert made["rate"] == RATE
    made = shell.json("definitions", "put", "greet", "--key-rate", "5/s", "--key-strategy", "drop_new")
    assert {name: made["by_key"][name] for name in ("pointer", "max_running", "strategy", "fifo")} == {
        "pointer": "/name",
        "max_running": 2,
        "strategy": "drop_new",
        "fifo": True,
    }
    assert made["by_key"]["rate"]["limit"] == 5
    made = shell.json("definitions", "put", "greet", "--no-key-max-running", "--no-key-fifo", "--no-rate")
    assert (made["rate"], made["by_key"]["max_running"], made["by_key"]["fifo"]) == (None, None, False)
    assert "/name: 5/s+5" in shell("limits").output
    made = shell.json("definitions", "put", "greet", "--no-by-key", "--no-rate-per-tenant")
    assert made["by_key"] is made["rate_per_tenant"] is None
    added = shell.json(
        "definitions", "add", "mail", "--rate", "1/s", "--by-key", "/to", "--key-max-running", "1"
    )
    assert (added["rate"]["limit"], added["by_key"]["pointer"]) == (1, "/to")


@each_case(
    ("options", "told"),
    [
        (("--rate", "1/s", "--no-rate"), "not both"),
        (("--rate-per-tenant", "1/s", "--no-rate-per-tenant"), "not both"),
        (("--key-max-running", "1"), "--by-key POINTER"),
        (("--by-key", "/name"), "--key-rate"),
        (("--by-key", "name", "--key-max-running", "1"), "by-key.pointer"),
        (("--by-key", "/name", "--no-by-key"), "not both"),
        (("--by-key", "/name", "--key-rate", "1/s", "--no-key-rate"), "not both"),
        (("--by-key", "/name", "--key-max-running", "1", "--no-key-max-running"), "not both"),
    ],
)
def test_wrong_limits_of_a_definition_change_nothing(
    shell: Shell, options: tuple[str, ...], told: str
) -> None:
    refused = shell("definitions", "put", "greet", *options)
    assert refused.exit_code == 1
    assert told in refused.output
    assert shell.json("limits")["items"] == []


def test_held_jobs_are_counted_by_key(shell: Shell, database_url: str) -> None:
    shell("definitions", "put", "anything", "--by-key", "/customer", "--key-max-running", "1")
    for _ in range(3):
        shell.json("jobs", "enqueue", "anything", "--tenant", "acme", '{"customer": "seven"}')
    with psycopg.connect(database_url, autocommit=True) as connection:
        while connection.execute("select from fairlead.later where held").fetchone() is None:
            connection.execute("select fairlead.claim('w', gen_random_uuid(), 10, 600, null, null, 0)")
    told = shell("limits").output
    assert "/customer: 1 running" in told
    assert "acme seven (2)" in told
