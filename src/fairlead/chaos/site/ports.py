"""Ports that servers of a run can take again after they were killed."""

import random
import socket
from pathlib import Path

# The kernel gives ports above this to outgoing connections, such as those of our clients.
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, HIGHEST = 10_000, 32_000
TRIES = 1000


def find_free_ports(count: int) -> list[int]:
    """Free ports on the loopback address that no outgoing connection gets."""
    highest = min(HIGHEST, _read_lowest_ephemeral() - 1)
    candidates = random.sample(range(LOWEST, highest), TRIES) if highest > LOWEST + TRIES else [0] * TRIES
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue  # in use
            found.append(probe.getsockname()[1])
    return found


def _read_lowest_ephemeral() -> int:
    try:
        return int(EPHEMERAL.read_text(encoding="utf-8").split()[0])
    except OSError:
        return HIGHEST
