"""`fairlead sources`: what is listed, and what a mistake in fairlead.toml is answered with."""

from pathlib import Path

import pytest

from tests import given
from tests.cli.test_commands import Shell
from tests.processes import free_port
from tests.tables import each_case

KAFKA = '[sources.orders]\ndriver = "kafka"\nservers = ["127.0.0.1:1"]\ntopics = ["orders"]\nevent = "order.placed"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fairlead.toml"
    path.touch()
    monkeypatch.setenv("FAIRLEAD_CONFIG", str(path))
    return path


def test_sources_are_listed_paused_and_resumed(shell: Shell, database_url: str) -> None:
    assert "There are no sources" in shell("sources", "list").output
    given.at(database_url, given.add_source, "orders")
    assert shell("sources", "pause", "orders", "--note", "stock-taking").output == "paused orders\n"
    [found] = shell.json("sources", "list")["items"]
    assert (found["state"], found["note"], found["tenant"]) == ("paused", "stock-taking", "acme")
    assert "paused" in shell("sources", "list").output
    assert shell("sources", "resume", "orders").output == "resumed orders\n"
    assert shell.json("sources", "list", "--after", "orders")["items"] == []
    assert shell.refused("sources", "pause", "nothing") == "source_unknown"


@each_case(
    ("text", "why"),
    [
        ("", "There are no sources in"),
        ('[sources.orders]\ndriver = "rabbit"\n', "driver must be one of kafka, nats, sqs"),
        (KAFKA, "tenant is needed, or tenant_from: one of the two"),
        (
            KAFKA + 'tenant = "acme"\ntenant_from = "key"\n',
            "tenant is needed, or tenant_from: one of the two",
        ),
        (
            KAFKA + 'tenant_from = "subject:2"\n',
            "tenant_from must be header:NAME, or one of key, partition, topic",
        ),
        (KAFKA + 'tenant = "acme"\nbatch = 0\n', "Expected `int` >= 1 - at `$.batch`"),
        (KAFKA + 'tenant = "acme"\nserver = "x"\n', "server is no option of kafka, which has"),
        (KAFKA + 'tenant = "acme"\nremember_days = 0\n', "remember_days must be 1 to 3650"),
        (
            KAFKA + 'tenant = "acme"\n[sources.orders.settings]\n"enable.auto.commit" = true\n',
            "enable.auto.commit cannot",
        ),
        (KAFKA + 'tenant = "acme"\n[sources.orders.settings]\n"sasl.password" = "env:NO_SUCH"\n', "NO_SUCH"),
        (
            KAFKA.replace("order.placed", "job.placed") + 'tenant = "acme"\n',
            "event is reserved for the system",
        ),
        (
            KAFKA.replace("order.placed", "a.{subject}") + 'tenant = "acme"\n',
            "there are key, partition, topic",
        ),
        (KAFKA.replace("order.placed", "1") + 'tenant = "acme"\n', "event must begin with a letter"),
        (KAFKA.replace("orders]", '"a b"]', 1) + 'tenant = "acme"\n', "a name has up to 63 letters"),
    ],
)
def test_a_mistake_in_the_file_is_named(shell: Shell, file: Path, text: str, why: str) -> None:
    file.write_text(text, encoding="utf-8")
    for command in ("run", "check"):
        done = shell("sources", command)
        assert done.exit_code == 1
        assert why in " ".join(done.output.split())


def test_a_check_says_that_the_broker_cannot_be_reached_without_its_password(
    shell: Shell, file: Path
) -> None:
    file.write_text(
        f'[sources.orders]\ndriver = "nats"\nservers = ["nats://me:hush-hush@127.0.0.1:{free_port()}"]\n'
        'stream = "ORDERS"\ntenant = "acme"\nevent = "order.placed"\n',
        encoding="utf-8",
    )
    done = shell("sources", "check")
    assert done.exit_code == 1
    assert "NATS cannot be used now" in done.output
    assert "1 of 1 sources cannot be used: orders" in " ".join(done.output.split())
    assert "hush" not in done.output
    assert "There is no [sources.parcels]" in shell("sources", "check", "parcels").output
