"""A real nginx, as people put one before their applications."""

import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.processes import free_port, started, until

# Buffering, HTTP versions and headers are nginx's own defaults.
CONFIGURATION = """
daemon off;
user {user};
pid {folder}/nginx.pid;
error_log {folder}/error.log notice;
worker_processes 1;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location /fairlead/ {{
            proxy_pass {server}/;
        }}
    }}
}}
"""


def find_nginx() -> str | None:
    """The program; Debian puts it where an ordinary user's PATH does not lead."""
    folders = [*os.get_exec_path(), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which("nginx", path=os.pathsep.join(folders))


class Nginx:
    """Serves a server below /fairlead/."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]", port: int) -> None:
        self._folder = folder
        self._process = process
        self.url = f"http://127.0.0.1:{port}/fairlead"

    def reload(self) -> None:
        """Read the configuration anew: new workers begin, and old ones end when they have answered."""
        begun = self._beginnings()
        self._process.send_signal(signal.SIGHUP)
        until(lambda: self._beginnings() > begun, "nginx to have read its configuration anew")

    def _beginnings(self) -> int:
        return (self._folder / "error.log").read_text().count("start worker process ")


@contextmanager
def nginx(folder: Path, server: str) -> Iterator[Nginx]:
    """Run an nginx before a server."""
    program = find_nginx()
    if program is None:
        raise FileNotFoundError("nginx is not installed; see scripts/test-tools")
    folder.mkdir()
    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(CONFIGURATION.format(folder=folder, port=port, server=server, user=getpass.getuser()))
    argv = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(settings)]
    with started(argv, env={}) as process:
        running = Nginx(folder, process, port)
        try:
            until(lambda: _answers(running) or process.poll() is not None, "nginx to answer")
            assert process.poll() is None, process.communicate()[0]
            yield running
        finally:
            process.terminate()  # its workers with it
            process.wait()


def _answers(running: Nginx) -> bool:
    try:
        return httpx2.get(running.url + "/healthz").is_success
    except httpx2.TransportError:
        return False
