"""The jobs of the compose file's worker: replace them with yours."""

from fairlead import Context, Fairlead

fl = Fairlead()


@fl.job(max_attempts=5, timeout=30)
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}"
