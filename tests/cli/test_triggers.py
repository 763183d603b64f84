"""`fairlead triggers`, as a person and a script use it."""

import re
from typing import Any

import pytest

from tests.cli.test_commands import Shell, text

NOBODY = "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"
ACME = ("triggers", "add", "--tenant", "acme", "--definition")


def nightly(shell: Shell, *more: str) -> dict[str, Any]:
    made = shell.json(*ACME, "anything", "--cron", "0 2 * * *", "--timezone", "America/New_York", *more)
    return dict(made)


def test_a_schedule_is_added_listed_and_shown(shell: Shell) -> None:
    made = nightly(shell, "--label", "Nightly", "--payload", '{"at": "{{schedule.local_time}}"}')
    assert (made["label"], made["trigger_type"], made["cron_expr"]) == ("Nightly", "schedule", "0 2 * * *")
    assert (made["is_enabled"], made["overlap"], made["catch_up"]) == (True, "skip", "skip")
    assert made["payload_template"] == {"at": "{{schedule.local_time}}"}
    assert made["when"] == "every day at 02:00 (America/New_York)"
    assert made["next_fire_at"].endswith((":00:00Z",))
    assert made["warnings"] == []
    assert "secret_paths" not in made

    [listed] = shell.json("triggers", "list")["items"]
    assert (listed["id"], listed["last_firing"]) == (made["id"], None)
    told = text(shell, "triggers", "list")
    assert f"{made['id']} acme Nightly every day at 02:00 (America/New_York) anything yes in " in told
    shown = text(shell, "triggers", "show", made["id"])
    assert "time zone America/New_York" in shown
    assert "It has not fired yet." in shown
    assert shell.json("triggers", "show", made["id"])["id"] == made["id"]


def test_an_interval_and_an_event_trigger_are_added(shell: Shell) -> None:
    every = shell.json(*ACME, "anything", "--every", "3600", "--start-at", "2040-01-01", "--overlap", "allow")
    assert (every["every_seconds"], every["next_fire_at"]) == (3600, "2040-01-01T00:00:00Z")
    assert every["label"] == "anything"
    assert every["when"] == "every hour from 2040-01-01 00:00:00 UTC"

    options = ("--event", "user.signed_up", "--window", "0", "--filter", '{"user.kind": "human"}')
    event = shell.json(*ACME, "greet", *options, "--payload", '{"name": "{{event.user.name}}"}', "--disabled")
    assert (event["trigger_type"], event["event_name"]) == ("event", "user.signed_up")
    assert (event["filter"], event["dedupe_window_seconds"]) == ({"user.kind": "human"}, 0)
    assert (event["is_enabled"], event["next_fire_at"]) == (False, None)
    shown = text(shell, "triggers", "show", event["id"])
    assert "when on user.signed_up" in shown
    assert 'filter {"user.kind":"human"}' in shown
    assert "catch up" not in shown


def test_what_can_be_seen_not_to_fit_is_a_warning(shell: Shell) -> None:
    result = shell(*ACME, "greet", "--event", "user.signed_up", "--payload", "{}")
    assert result.exit_code == 0
    assert "added" in result.stdout
    assert "on user.signed_up" in result.stdout
    assert "warning: " in result.stderr
    assert "name" in result.stderr
    assert shell.json(*ACME, "greet", "--event", "user.signed_up")["warnings"] != []


def test_lists_are_narrowed_and_walked(shell: Shell) -> None:
    first = nightly(shell)
    second = shell.json(*ACME, "greet", "--event", "user.signed_up")
    other = shell.json(
        "triggers", "add", "--tenant", "umbrella", "--definition", "anything", "--every", "60", "--disabled"
    )

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in shell.json("triggers", "list", *options)["items"]]

    assert ids() == [other["id"], second["id"], first["id"]]
    assert ids("--limit", "1") == [other["id"]]
    assert ids("--limit", "1", "--after", other["id"]) == [second["id"]]
    assert ids("--tenant", "acme") == [second["id"], first["id"]]
    assert ids("--type", "event") == ids("--event", "user.signed_up") == ids("--definition", "greet")
    assert ids("--type", "event") == [second["id"]]
    assert ids("--disabled") == [other["id"]]
    assert ids("--enabled", "--definition", "anything") == [first["id"]]
    assert "fairlead triggers add" in shell("triggers", "list", "--event", "nothing.happened").output


def test_a_trigger_is_changed_disabled_enabled_and_removed(shell: Shell) -> None:
    made = nightly(shell)
    which = made["id"]
    changed = shell.json("triggers", "change", which, "--cron", "@hourly", "--label", "Hourly")
    assert (changed["label"], changed["cron_expr"], changed["timezone"]) == (
        "Hourly",
        "@hourly",
        "America/New_York",
    )
    assert shell.json("triggers", "change", which, "--timezone", "")["timezone"] is None
    every = shell.json("triggers", "change", which, "--every", "60", "--catch-up", "all")
    assert (every["cron_expr"], every["every_seconds"], every["catch_up"]) == (None, 60, "all")
    again = shell.json("triggers", "change", which, "--cron", "0 3 * * *")
    assert (again["every_seconds"], again["start_at"], again["label"]) == (None, None, "Hourly")

    assert shell.json("triggers", "disable", which)["next_fire_at"] is None
    assert "enabled " in text(shell, "triggers", "enable", which)
    assert "next run " in text(shell, "triggers", "enable", which)
    assert f"removed {which}" in text(shell, "triggers", "remove", which)
    assert shell.refused("triggers", "remove", which) == "trigger_unknown"
    assert shell.json("triggers", "list")["items"] == []


def test_a_schedule_is_fired_by_hand_and_its_firings_are_told(shell: Shell) -> None:
    made = nightly(shell, "--disabled")
    fired = shell.json("triggers", "fire", made["id"])
    assert fired["outcome"] == "enqueued"
    assert shell.json("jobs", "show", fired["job_id"])["definition_key"] == "anything"
    # the job before it still waits
    assert f"skipped: {fired['job_id']}: overlap" in text(shell, "triggers", "fire", made["id"])

    found = shell.json("triggers", "firings", made["id"])["items"]
    assert [one["outcome"] for one in found] == ["skipped", "enqueued"]
    [older] = shell.json("triggers", "firings", made["id"], "--after", found[0]["id"])["items"]
    assert older["job_id"] == fired["job_id"]
    assert len(shell.json("triggers", "firings", made["id"], "--outcome", "skipped")["items"]) == 1
    assert len(shell.json("triggers", "firings", made["id"], "--limit", "1")["items"]) == 1
    told = text(shell, "triggers", "firings", made["id"])
    assert "by hand skipped" in told
    assert "overlap: the previous job has not ended" in told
    assert "No matching firings." in text(shell, "triggers", "firings", made["id"], "--outcome", "failed")
    assert shell.json("triggers", "list")["items"][0]["last_firing"]["outcome"] == "skipped"
    assert "by hand enqueued" in text(shell, "triggers", "show", made["id"])


def test_a_firing_that_failed_says_why(shell: Shell) -> None:
    made = shell.json(*ACME, "greet", "--cron", "@daily", "--payload", '{"name": 3}')
    assert "failed: payload_invalid: " in text(shell, "triggers", "fire", made["id"])
    assert "payload_invalid: " in text(shell, "triggers", "show", made["id"])
    assert " failed" in text(shell, "triggers", "list")


def test_what_cannot_be_is_refused_each_with_its_code(shell: Shell) -> None:
    def refused(*options: str) -> str:
        return shell.refused(*ACME, "anything", *options)

    assert refused("--cron", "@daily", "--event", "a.b") == "trigger_form_invalid"
    assert refused("--event", "a.b", "--payload", "{") == "invalid_input"
    for command in ("show", "change", "enable", "disable", "remove", "fire", "firings", "preview"):
        assert shell.refused("triggers", command, NOBODY) == "trigger_unknown", command
    assert shell("triggers", "show", "not-an-id").exit_code == 2
    assert shell("triggers", "add", "--tenant", "acme", "--cron", "@daily").exit_code == 2


# Preview


@pytest.fixture
def nowhere() -> Shell:
    """Where no database is: a schedule that is only thought of needs none."""
    return Shell("postgresql://nobody@127.0.0.1:1/nothing")


def test_the_next_five_runs_of_a_schedule_are_previewed_without_a_database(nowhere: Shell) -> None:
    runs = nowhere.json("triggers", "preview", "--cron", "0 2 * * *", "--timezone", "America/New_York")
    assert runs["in_words"] == "every day at 02:00 (America/New_York)"
    assert len(runs["runs"]) == 5
    assert all("T02:00:00-0" in run["local"] or run["note"] for run in runs["runs"])
    assert set(runs["runs"][0]) == {"at", "local", "offset", "note", "fires_at"}
    told = text(nowhere, "triggers", "preview", "--cron", "0 12 * * *", "--timezone", "Asia/Kathmandu")
    assert told.startswith("every day at 12:00 (Asia/Kathmandu)\n")
    assert (
        len(re.findall(r"\w{3} \d{4}-\d\d-\d\d 12:00:00 UTC\+05:45 \d{4}-\d\d-\d\d 06:15:00 in ", told)) == 5
    )


def test_a_change_of_clocks_is_noted_in_whole(nowhere: Shell) -> None:
    """Every year there is one between two noons half a year apart."""
    told = text(nowhere, "triggers", "preview", "--cron", "0 12 1 1,7 *", "--timezone", "Europe/London")
    assert "clocks changed since the run before: UTC+01:00 instead of UTC+00:00" in told


def test_a_stored_schedule_is_previewed_in_its_zone(shell: Shell) -> None:
    shell.json("tenants", "add", "tokyo", "--timezone", "Asia/Tokyo")
    made = shell.json(
        "triggers", "add", "--tenant", "tokyo", "--definition", "anything", "--cron", "30 9 * * *"
    )
    told = shell.json("triggers", "preview", made["id"], "--count", "2")
    assert [run["local"][10:] for run in told["runs"]] == ["T09:30:00+09:00"] * 2
    assert told["runs"][0]["at"] == made["next_fire_at"]
    assert shell.refused("triggers", "preview", made["id"], "--cron", "@daily") == "invalid_input"


def test_an_event_trigger_is_tried_with_a_sample_or_a_past_event(shell: Shell) -> None:
    places = '{"name": "{{event.user}}"}'
    made = shell.json(
        *ACME, "greet", "--event", "user.signed_up", "--payload", places, "--filter", '{"n": 1}'
    )

    def tried(data: str, *more: str) -> str:
        return text(shell, "triggers", "preview", made["id"], "--sample", data, *more)

    assert 'would enqueue\npayload {"name":"Ada"}' in tried('{"user": "Ada", "n": 1}')
    assert "would do nothing" in tried('{"user": "Ada", "n": 2}')
    assert "would fail" in tried('{"n": 1}')
    assert "/name event.user" in tried('{"n": 1}')
    event = shell.json("events", "emit", "user.signed_up", '{"user": "Grace", "n": 1}', "--tenant", "acme")
    answer = shell.json("triggers", "preview", made["id"], "--event-id", event["id"])
    assert (answer["would"], answer["payload"], answer["valid"]) == ("enqueue", {"name": "Grace"}, True)
    assert shell.json("jobs", "list")["items"] == []

    assert shell.refused("triggers", "preview", made["id"]) == "invalid_input"
    assert shell.refused("triggers", "preview", made["id"], "--event-id", NOBODY) == "event_unknown"
    assert shell.refused("triggers", "preview", made["id"], "--sample", "{") == "invalid_input"
    assert shell.refused("triggers", "preview", "--sample", "{}") == "invalid_input"


def test_a_schedule_has_an_end_and_jitter(shell: Shell) -> None:
    made = nightly(shell, "--jitter", "300", "--end-at", "2040-01-01")
    assert (made["jitter_seconds"], made["end_at"]) == (300, "2040-01-01T00:00:00Z")
    assert made["when"].endswith("up to 5 minutes later, until 2040-01-01 00:00:00 UTC")
    assert "fires (UTC)" in text(shell, "triggers", "preview", made["id"])
    assert "with jitter" in text(shell, "triggers", "preview", "--cron", "@daily", "--jitter", "60")

    over = text(shell, "triggers", "change", made["id"], "--end-at", "2026-01-01")
    assert "It is over: no further runs." in over
    assert "next run over" in text(shell, "triggers", "show", made["id"])
    endless = shell.json("triggers", "change", made["id"], "--no-end", "--jitter", "0")
    assert (endless["end_at"], endless["is_over"]) == (None, False)
    assert shell("triggers", "change", made["id"], "--no-end", "--end-at", "2040-01-01").exit_code == 2
    wrong = shell(*ACME, "anything", "--every", "60", "--start-at", "2040-01-02", "--end-at", "2040-01-01")
    assert (wrong.exit_code, "--end-at must be after --start-at" in wrong.output) == (1, True)


def test_a_range_is_previewed_and_backfilled_once(shell: Shell) -> None:
    made = shell.json(*ACME, "anything", "--cron", "0 2 * * *")
    week = (made["id"], "--from", "2026-03-01", "--to", "2026-03-08")

    assert "7 instants, 0 of them with a job" in text(shell, "triggers", "backfill", *week, "--preview")
    done = text(shell, "triggers", "backfill", *week)
    assert "enqueued 7 jobs; 0 instants had one already" in done
    assert "fairlead jobs list --correlation-id backfill:" in done
    again = shell.json("triggers", "backfill", *week)
    assert (again["enqueued"], again["fired"]) == (0, 7)
    assert "7 queued" in text(shell, "triggers", "backfill", *week, "--preview", "--count", "1")
    minutely = shell.json(*ACME, "anything", "--cron", "* * * * *")
    many = shell("triggers", "backfill", minutely["id"], "--from", "30d")
    assert many.exit_code == 1
    assert "max_backfill" in many.output
    assert "more than 1,000 instants" in text(
        shell, "triggers", "backfill", minutely["id"], "--from", "30d", "--preview"
    )
