"""`fairlead events`, as a person and a script use it."""

from fairlead import Fairlead, Settings
from fairlead.actions.dispatch import dispatch
from tests.cli.test_commands import Shell

NOBODY = "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"
SIGNED_UP = ("events", "emit", "user.signed_up")


async def dispatched(settings: Settings) -> int:
    async with Fairlead(settings=settings) as fl, fl.transaction() as tx:
        return await dispatch(tx, fl.catalog, limit=100)


def test_an_event_is_emitted_listed_and_shown_while_it_waits(shell: Shell) -> None:
    options = ("--correlation-id", "order-1", "--occurred-at", "2026-02-16T10:30:00Z")
    made = shell.json(*SIGNED_UP, '{"user": "ada"}', "--tenant", "acme", *options)
    other = shell.json("events", "emit", "other.thing", "--tenant", "umbrella")

    shown = shell.json("events", "show", made["id"])
    assert (shown["name"], shown["tenant"], shown["data"]) == ("user.signed_up", "acme", {"user": "ada"})
    assert (shown["correlation_id"], shown["occurred_at"]) == ("order-1", "2026-02-16T10:30:00Z")
    assert (shown["dispatched_at"], shown["firings"]) == (None, [])
    assert "is a scheduler running?" in shell("events", "show", made["id"]).output

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in shell.json("events", "list", *options)["items"]]

    assert ids() == [other["id"], made["id"]]
    assert ids("--limit", "1", "--after", other["id"]) == [made["id"]]
    assert ids("--tenant", "acme") == ids("--name", "user.signed_up") == ids("--correlation-id", "order-1")
    assert ids("--tenant", "acme") == [made["id"]]
    assert made["id"] in shell("events", "list").output
    assert "fairlead events emit" in shell("events", "list", "--name", "nothing.happened").output
    told = shell(*SIGNED_UP, "--tenant", "acme").output.split()
    assert told == ["emitted", ids()[0]]


def test_what_an_event_set_off_is_told_and_can_be_had_again(shell: Shell, settings: Settings) -> None:
    import asyncio  # noqa: PLC0415

    add = ("triggers", "add", "--tenant", "acme", "--definition", "greet", "--event", "user.signed_up")
    good = shell.json(*add, "--label", "Greet them", "--payload", '{"name": "{{event.user}}"}')
    bad = shell.json(*add, "--label", "Broken", "--payload", '{"name": "{{event.nobody}}"}')
    made = shell.json(*SIGNED_UP, '{"user": "Ada"}', "--tenant", "acme")
    asyncio.run(dispatched(settings))

    told = shell("events", "show", made["id"]).output
    assert "Greet them" in told
    assert "enqueued" in told
    assert "template_failed: " in told
    fired = {one["trigger_id"]: one for one in shell.json("events", "show", made["id"])["firings"]}
    assert fired[bad["id"]]["outcome"] == "failed"
    assert shell.json("jobs", "show", fired[good["id"]]["job_id"])["payload"] == {"name": "Ada"}

    again = shell.json("events", "replay", made["id"], "--trigger", good["id"])
    assert again["replay_of"] == made["id"]
    asyncio.run(dispatched(settings))
    [firing] = shell.json("events", "show", again["id"])["firings"]
    assert (firing["trigger_id"], firing["outcome"]) == (good["id"], "enqueued")  # in spite of the window
    assert "replayed as " in shell("events", "replay", made["id"]).output
    assert f"event {made['id']}" in shell("triggers", "firings", good["id"]).output

    nothing = shell.json("events", "emit", "nobody.cares", "--tenant", "acme")
    asyncio.run(dispatched(settings))
    assert "No trigger matched it." in shell("events", "show", nothing["id"]).output


def test_what_cannot_be_is_refused_each_with_its_code(shell: Shell) -> None:
    assert shell.refused(*SIGNED_UP, "[]", "--tenant", "acme") == "event_invalid"
    assert shell.refused(*SIGNED_UP, "{", "--tenant", "acme") == "invalid_input"
    assert shell.refused("events", "show", NOBODY) == "event_unknown"
    assert shell(*SIGNED_UP, "{}").exit_code == 2
