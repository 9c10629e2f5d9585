"""Recorded instruction results of a GPU against the emulator, bit for bit: the tests of tests/golden/numerics on another folder.

    python -m tools.record.vectors DIR

DIR holds files of the same form (tests/golden/numerics/README.md).  Prints for each file how many results were compared, and the
names that no test read; the exit code is that of the tests, or 1 when something was left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

TESTS = (
    "emu/units/test_mma.py", "emu/units/test_tensor_silicon.py", "isa/ops/test_convert.py", "isa/ops/test_float32.py",
    "isa/ops/test_fp8.py", "isa/ops/test_half.py", "isa/ops/test_rounding.py", "isa/ops/test_special_functions.py",
)  # fmt: skip
FILES = ("scalar_f32", "packed_half", "unary_half", "mufu_samples", "mma")
BOUNDED = ("sin", "cos")  # not known bit for bit
INPUTS = (".A", ".B", ".C", ".in", "_x")


def is_result(name: str) -> bool:
    """Whether an array of a file holds results, not operands."""
    return name not in ("a", "b", "c", "x") and not name.endswith(INPUTS)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="recorded vectors")
    args = parser.parse_args(argv)
    os.environ["WARPSMITH_VECTORS"] = str(args.folder.resolve())
    tests = Path(__file__).resolve().parents[2] / "tests"
    code = int(pytest.main(["-q", "-p", "no:cacheprovider", *(str(tests / name) for name in TESTS)]))
    from tests.isa.ops import recorded  # what the tests have read

    for file in FILES:
        arrays = recorded.arrays(file)
        left = sorted(name for name in arrays if is_result(name) and name not in arrays.read)
        code = code or int(bool(left))
        read = {name: len(arrays[name].ravel()) for name in arrays if is_result(name) and name not in left}
        exact = {name: size for name, size in read.items() if not name.startswith(BOUNDED)}
        words = [f"{sum(exact.values()):,} results of {len(exact)} arrays bit for bit"]
        words += [f"{sum(read.values()) - sum(exact.values()):,} within a bound"] if len(read) > len(exact) else []
        words += [f"not read: {', '.join(left)}"] if left else []
        print(f"{file}: {'; '.join(words)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
