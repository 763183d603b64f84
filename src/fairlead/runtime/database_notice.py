"""Tells the user which database is used when none is configured, once, when it is opened."""

import sys
from pathlib import Path

import structlog

from fairlead.db.dev_record import DevRecord, find_records

log = structlog.get_logger(__name__)


def report_embedded(data_dir: Path, *, joined: bool) -> None:
    """Report that the embedded database is used, and each running `fairlead dev` that uses another one.

    Writes to the log if it is configured; else to standard error, as standard output belongs to the program.
    """
    devs = [] if joined else find_other_devs(data_dir)
    if structlog.is_configured():
        log.info("embedded_database", data_dir=str(data_dir.resolve()), state=_describe_state(joined=joined))
        for dev in devs:
            log.warning("dev_uses_another_database", dev=dev.url, to_use_it=dev.how_to_join)
        return
    lines = [f"{describe_embedded(data_dir)}, {_describe_state(joined=joined)}.", *map(describe_dev, devs)]
    sys.stderr.writelines(f"fairlead: {line}\n" for line in lines)


def find_other_devs(data_dir: Path) -> list[DevRecord]:
    """The running `fairlead dev` processes that use another database than the embedded one in this folder."""
    here = str(data_dir.resolve())
    return [dev for dev in find_records() if dev.database is not None or dev.data_dir != here]


def describe_embedded(data_dir: Path) -> str:
    """A sentence that names the embedded database and says how to choose another."""
    return (
        f"using the embedded PostgreSQL in {data_dir.resolve()} "
        "(choose another with FAIRLEAD_DATABASE_URL or FAIRLEAD_DATA_DIR)"
    )


def describe_dev(dev: DevRecord) -> str:
    """A sentence that names a `fairlead dev` with another database and says how to use that one."""
    return f"`fairlead dev` at {dev.url} uses another database; to use that one too, set {dev.how_to_join}"


def _describe_state(*, joined: bool) -> str:
    return "which was running already" if joined else "started now"
