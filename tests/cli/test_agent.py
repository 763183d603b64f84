"""What `fairlead agent` says when it cannot begin."""

from pathlib import Path

import pytest

from tests.processes import free_port, run

COMMANDS = '[commands.hello]\nargv = ["/bin/echo", "hello"]\n'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    config = tmp_path / "fairlead.toml"
    config.write_text(COMMANDS)
    return {"FAIRLEAD_CONFIG": str(config)}


def test_an_agent_that_was_never_enrolled_is_told_how(env: dict[str, str], tmp_path: Path) -> None:
    done = run("agent", "--state-dir", str(tmp_path / "state"), env=env)

    assert done.returncode == 1
    assert "--server URL --enrol CODE" in done.stderr
    assert not (tmp_path / "state").exists()


def test_a_code_without_an_answer_leaves_nothing_behind(env: dict[str, str], tmp_path: Path) -> None:
    server = f"http://127.0.0.1:{free_port()}"
    done = run(
        "agent", "--state-dir", str(tmp_path / "state"), "--server", server, "--enrol", "fl_secret", env=env
    )

    assert done.returncode == 1
    assert f"{server}/api/v1 does not answer" in done.stderr
    assert "fl_secret" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_an_agent_with_nothing_to_run_is_refused(tmp_path: Path) -> None:
    (config := tmp_path / "fairlead.toml").touch()

    done = run("agent", env={"FAIRLEAD_CONFIG": str(config)})

    assert done.returncode == 1
    assert "There is nothing to run" in done.stderr
