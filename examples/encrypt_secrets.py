"""Secrets that the database has only sealed: python examples/encrypt_secrets.py

In earnest the key comes from a file or a KMS, and `fairlead keys enable` turns encryption on.
"""

import asyncio
import hashlib
import os
from typing import Annotated

# `fairlead keys generate` prints a random one
os.environ["MASTER_KEY"] = hashlib.sha256(b"an example, not a key").hexdigest()
os.environ["FAIRLEAD_ENCRYPTION_KEY"] = "env:MASTER_KEY"

from fairlead import Fairlead, Secret
from fairlead.actions import encryption

fl = Fairlead(actor="encrypt-secrets")


@fl.job(key="example.encrypted")
async def charge(customer: str, api_key: Annotated[str, Secret()]) -> dict[str, object]:
    return {"customer": customer, "characters": len(api_key), "charged_with": api_key}


async def main() -> None:
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        async with fl.transaction() as tx:
            await encryption.enable(tx, fl.principal)
        payload = {"customer": "ada", "api_key": "sk_example_of_28_characters_"}
        job = await fl.enqueue("example.encrypted", tenant="example", payload=payload)
        print("shown:", (await fl.read(job.id)).payload)
        async with fl.transaction() as tx:
            [(stored,)] = await tx.values(
                "select payload #>> '{api_key,$sealed}' from fairlead.jobs where id = %(id)s", {"id": job.id}
            )
        print("stored:", stored[:9])
        await fl.tick()  # a worker would do that
        print(await job.result(timeout=120))


if __name__ == "__main__":
    asyncio.run(main())
