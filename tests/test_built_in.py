"""The jobs that come with Fairlead, as a worker serves them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairlead import Fairlead, Settings
from fairlead.actions import audit, definitions
from fairlead.errors import CommandInvalid, PayloadInvalid, SecretsRequired, SettingInvalid
from fairlead.model.job import JobStatus
from tests.given import TENANT, TESTER
from tests.handlers.loopback import Reply, always, serving
from tests.handlers.mail_servers import mail_server
from tests.tables import each_case
from tests.waiting import SECONDS

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
NO_FILE = Path("/nowhere/fairlead.toml")


def with_builtins(settings: Settings, file: Path = NO_FILE, **more: Any) -> Fairlead:
    fl = Fairlead(settings=replace(settings, **more), actor="tester")
    fl.allow_builtins(file)
    return fl


def test_nothing_reaches_the_network_unless_it_is_turned_on() -> None:
    assert with_builtins(Settings()).functions == {}


async def test_a_request_is_a_job_like_any_other(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    file = tmp_path / "fairlead.toml"
    file.write_text(
        f'[http.tenants.{TENANT}.secrets]\norders = "env:HOOK"\n[http.tenants.umbrella.secrets]\ntheirs = "env:HOOK"\n'
    )
    answer = Reply(200, {"token": "s3cret-word", "n": 1})
    fl = with_builtins(settings, file, http_requests=True, http_allow=("127.0.0.1",))
    async with serving(always(answer)) as server, fl:
        payload = {"url": server.url, "secret_headers": {"x-key": "s3cret-word"}, "sign_with": "orders"}
        job = await fl.enqueue("http.request", tenant=TENANT, payload=payload)
        with pytest.raises(PayloadInvalid):
            await fl.enqueue("http.request", tenant=TENANT, payload={"url": server.url, "method": "BREW"})
        others = await fl.enqueue("http.request", tenant=TENANT, payload={**payload, "sign_with": "theirs"})
        await fl.tick()
        ended, refused = await job.read(), await others.read()

    assert refused.status is JobStatus.FAILED
    assert "RequestRefused" in str(refused.last_error)
    assert ended.status is JobStatus.SUCCEEDED
    assert len(server.asked) == 1
    assert ended.output["body"] == {"token": "[redacted]", "n": 1}
    assert server.asked[0].headers["x-key"] == "s3cret-word"
    assert server.asked[0].headers["webhook-id"] == str(job.id)


async def test_a_retry_takes_no_secret_to_another_server(settings: Settings) -> None:
    fl = with_builtins(settings, http_requests=True, http_allow=("127.0.0.1",))
    async with serving(always(Reply(404))) as server, serving(always(Reply())) as evil, fl:
        payload = {"url": server.url, "secret_headers": {"x-key": "s3cret-word"}}
        job = await fl.enqueue("http.request", tenant=TENANT, payload=payload)
        await fl.tick()
        shown = (await job.read()).payload
        with pytest.raises(SecretsRequired):
            await fl.retry(job.id, payload={**shown, "url": evil.url})
        assert (await job.read()).status is JobStatus.FAILED
        with pytest.raises(SecretsRequired):
            await fl.retry(job.id, payload={**shown, "url": f"{server.url}/other"})
        await fl.retry(job.id, payload=shown)
        await fl.tick()
        await fl.retry(job.id, payload={"url": evil.url, "secret_headers": {"x-key": "new-word"}})
        await fl.tick()

    assert [(one.path, one.headers["x-key"]) for one in server.asked] == [
        ("/", "s3cret-word"),
        ("/", "s3cret-word"),
    ]
    assert [one.headers["x-key"] for one in evil.asked] == ["new-word"]


async def test_its_definition_is_published_with_a_schema(settings: Settings) -> None:
    async with with_builtins(settings, http_requests=True) as fl, fl.transaction() as tx:
        made = (await definitions.get_by_keys(tx, TESTER, ["http.request"]))["http.request"]

    assert (made.kind, made.timeout_seconds, made.max_attempts) == ("function", 330, 5)
    assert made.arg_schema["required"] == ["url"]
    assert made.secret_paths == ("/secret_headers", "/signing_secret")


async def test_a_message_is_a_job_and_its_sending_is_audited(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    message = {"to": "ada@example.com", "subject": "Hello", "text": "How are you?"}
    async with mail_server() as server:
        file.write_text(
            f'[email]\nprovider = "smtp"\nfrom = "a@acme.example"\nhost = "127.0.0.1"\nport = {server.port}\n'
            'tls = "none"\n'
        )
        async with with_builtins(settings, file) as fl:
            job = await fl.enqueue("EMAIL_SEND", tenant=TENANT, payload=message)
            with pytest.raises(PayloadInvalid):
                await fl.enqueue("EMAIL_SEND", tenant=TENANT, payload={"to": "ada@example.com"})
            await fl.tick()
            output = await job.result(timeout=SECONDS)
            ended = await job.read()
            async with fl.transaction() as tx:
                written = await audit.list_entries_about_job(tx, TESTER, ended)

    assert output == {
        "provider": "smtp",
        "message_id": f"<{job.id}@acme.example>",
        "accepted": 1,
        "refused": 0,
    }
    assert [str(one["Message-ID"]) for one in server.messages] == [output["message_id"]]
    assert [one.action for one in written if one.action.startswith("EMAIL")] == ["EMAIL_SENT"]


async def test_the_secrets_of_a_message_are_shown_to_nobody(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    code = "Zr1-9fWq0pXw"
    message = {
        "to": "ada@example.com",
        "subject": "Hello",
        "text": "https://acme.example/#[[code]]",
        "secrets": {"code": code},
    }
    # as the filters of mail servers do
    said = f"554 5.7.1 blocked: https://acme.example/#{code}"
    async with mail_server({"DATA": said}) as server:
        file.write_text(
            f'[email]\nprovider = "smtp"\nfrom = "a@acme.example"\nhost = "127.0.0.1"\nport = {server.port}\n'
            'tls = "none"\n'
        )
        async with with_builtins(settings, file) as fl:
            job = await fl.enqueue("EMAIL_SEND", tenant=TENANT, payload=message)
            await fl.tick()
            ended = await job.read()

    assert ended.status is JobStatus.FAILED
    assert ended.payload == {**message, "secrets": {"code": "[redacted]"}}
    assert "blocked: https://acme.example/#[redacted]" in str(ended.error)
    assert code not in str(ended)


def test_a_function_of_ones_own_stands_in_its_place() -> None:
    fl = Fairlead(settings=Settings(http_requests=True))

    @fl.job(key="http.request")
    async def own(url: str) -> None: ...

    fl.allow_builtins(NO_FILE)
    fl.allow_builtins(NO_FILE)
    assert fl.functions == {"http.request": own}


def test_a_command_with_the_same_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text('[commands."http.request"]\nargv = ["/usr/bin/true"]\n')
    fl = Fairlead(settings=Settings(http_requests=True))
    fl.allow_commands(file)
    with pytest.raises(CommandInvalid, match="function and a command"):
        fl.allow_builtins(file)


@each_case(
    ("said", "where"),
    [
        ("http = 1", "http"),
        ("[http]\nsecret = 1", "http.secret"),
        ('[http.secrets]\na = "whsec_AAAA"', "http.secrets.a"),
        ('[http.secrets]\na = "env:NOT_SET_ANYWHERE"', "http.secrets.a"),
        ('[http.tenants.acme.secrets]\na = "file:/nowhere/at/all"', "http.tenants.acme.secrets.a"),
        ("[http.tenants]\nacme = 1", "http.tenants.acme"),
        (
            '[email]\nprovider = "resend"\nfrom = "a@b.example"\napi_key = "env:NOT_SET_ANYWHERE"',
            "email.api_key",
        ),
        ('http_allow = ["10.0.0.1/8"]', "http_allow"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(said: str, where: str, tmp_path: Path) -> None:
    file = tmp_path / "fairlead.toml"
    file.write_text(said)
    allow = ("10.0.0.1/8",) if where == "http_allow" else ()
    with pytest.raises(SettingInvalid) as refused:
        with_builtins(Settings(http_requests=True, http_allow=allow), file)
    assert refused.value.faults[0].path == where
    assert "AAAA" not in str(refused.value.as_dict())
