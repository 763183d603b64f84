"""How much randomised tests try: a part in `make test`, all in `make thorough`, which also runs the tests with that mark."""

import os

THOROUGH = "THOROUGH" in os.environ


def examples(count: int) -> int:
    """As many examples in `make thorough`, and a quarter of them otherwise."""
    return count if THOROUGH else count // 4
