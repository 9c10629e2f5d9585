"""How long a run takes before its first cycle: compiling the core, and loading it from the cache.

    python -m tools.bench.startup

Both are whole processes (`warpsmith run softmax` on four rows), the first with an empty cache folder.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

COMMAND = [sys.executable, "-m", "emu.cli", "run", "softmax", "--rows", "4", "--cols", "128"]


def seconds(cache: str) -> tuple[float, float]:
    """Wall-clock and processor seconds of one process that uses the cache folder `cache`."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(COMMAND, env={**os.environ, "WARPSMITH_CACHE": cache}, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print both."""
    with tempfile.TemporaryDirectory() as cache:
        for name in ("empty cache", "cached core"):
            wall, cpu = seconds(cache)
            print(f"{name}: {wall:.1f} s, {cpu:.1f} s of one core")


if __name__ == "__main__":
    main()
