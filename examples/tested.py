"""Tests of an application with Fairlead's pytest plugin: see examples/tested.

Run it with: python examples/tested.py (it needs pytest and pytest-asyncio)
"""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent / "tested"

if __name__ == "__main__":
    # as `pytest examples/tested` does
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", "-v", str(TESTS)], check=False).returncode)
