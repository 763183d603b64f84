"""A job that refers to a secret: the database has its name, and only the worker has the secret.

Run it with: python examples/secret_reference.py
(In earnest the file is the worker's fairlead.toml, and it takes: fairlead worker secret_reference:fl)
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated

from fairlead import Context, Fairlead, Secret
from fairlead.errors import JobFailed, PayloadInvalid

CONFIG = """
[secrets.stripe]
source = "env:STRIPE_API_KEY"
definitions = ["example.charge"]
tenants = ["example"]
"""

fl = Fairlead(actor="secret-reference")


@fl.job(key="example.charge", max_attempts=1)
async def charge(ctx: Context, customer: str, api_key: Annotated[str, Secret()]) -> dict[str, object]:
    ctx.log.info("charging", customer=customer, header=f"Bearer {api_key}")
    return {"customer": customer, "charged_with": api_key, "characters": len(api_key)}


async def run(customer: object, secret: str) -> None:
    payload = {"customer": customer, "api_key": {"$secret": secret}}
    job = await fl.enqueue("example.charge", tenant="example", payload=payload)
    await fl.tick()  # a worker would do that
    stored, _ = await fl.show(job.id)
    print(f"stored: {stored.payload}")
    print(await job.result(timeout=120))


async def main(folder: Path) -> None:
    os.environ["STRIPE_API_KEY"] = "sk_example_of_28_characters_"
    (config := folder / "fairlead.toml").write_text(CONFIG)
    fl.allow_secrets(config)
    async with fl:
        await fl.add_tenant("example", exist_ok=True)
        for customer, secret in (("ada", "stripe"), ("ada", "paypal"), ({"$secret": "stripe"}, "stripe")):
            try:
                await run(customer, secret)
            except JobFailed as error:
                print(error)
            except PayloadInvalid as error:
                print(f"refused with {error.code}: {error}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
