"""How processes of a run reach it: a file that the site writes and that clients read."""

import os
from pathlib import Path
from uuid import UUID

import msgspec

# Where a process finds the file, and the mark of the run that every process of it inherits.
ACCESS_VARIABLE = "FAIRLEAD_CHAOS_ACCESS"
RUN_VARIABLE = "FAIRLEAD_CHAOS_RUN"


class RunAccess(msgspec.Struct, frozen=True):
    """URLs and tokens. The host is of the first tenant, and jobs for it name `host_id`."""

    # of the HTTP API, without /api/v1, through proxies
    servers: list[str]
    # a tenant admin's token for each tenant, the hostile one included
    tokens: dict[str, str]
    worker_token: str
    host_id: UUID
    # definitions that no process of this run serves: clients must not enqueue them
    unserved: list[str] = []
    # the folder of the secrets that clients change
    secrets: str = ""


def read_access() -> RunAccess:
    """The file of the run that this process belongs to."""
    return msgspec.json.decode(Path(os.environ[ACCESS_VARIABLE]).read_bytes(), type=RunAccess)
