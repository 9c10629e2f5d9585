"""The special function unit on a GPU over all 2^32 inputs: checksums for `tools.sweep_mufu`.

    python -m tools.record.mufu --out DIR

DIR/mufu_crc.json gets, for each instruction, the CRC-32 of its results (little-endian u32, in the order of the inputs) in each of 16
slices of 2^28 inputs.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path

import numpy as np

from tools.record.driver import Gpu
from tools.record.kernel import assemble

SLICES, PARTS = 16, 4
COUNT = (1 << 32) // SLICES // PARTS  # of a launch
BLOCK = 256
INSTRUCTIONS = {
    "ex2": "ex2.approx.ftz.f32",
    "lg2": "lg2.approx.ftz.f32",
    "rcp": "rcp.approx.ftz.f32",
    "rsq": "rsqrt.approx.ftz.f32",
    "sqrt": "sqrt.approx.ftz.f32",
    "tanh": "tanh.approx.f32",
}


def text(instruction: str) -> str:
    """A kernel that writes the instruction's results for `first`, `first` + 1, ... to `out`."""
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry sweep(.param .u64 out, .param .u32 first)
{{
    .reg .b32 %r<4>;
    .reg .b64 %d<2>;
    .reg .f32 %x;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r0, %r0, {BLOCK}, %r1;
    ld.param.u32 %r2, [first];
    add.u32 %r2, %r2, %r0;
    mov.b32 %x, %r2;
    {instruction} %x, %x;
    ld.param.u64 %d0, [out];
    mul.wide.u32 %d1, %r0, 4;
    add.u64 %d0, %d0, %d1;
    st.global.f32 [%d0], %x;
    ret;
}}
"""


def checksums(gpu: Gpu, instruction: str) -> list[str]:
    """CRC-32 of each slice."""
    function = gpu.function(gpu.load(assemble(text(instruction))[0]), "sweep")
    results = np.zeros(COUNT, np.uint32)
    address = gpu.upload(results)
    found = []
    for part in range(SLICES):
        crc = 0
        for k in range(PARTS):
            first = (part * PARTS + k) * COUNT
            parameters = [np.uint64(address).tobytes(), np.uint32(first).tobytes()]
            gpu.launch(function, (COUNT // BLOCK, 1, 1), (BLOCK, 1, 1), 0, parameters)
            gpu.synchronize()
            gpu.read(address, results)
            crc = zlib.crc32(results.data, crc)
        found.append(f"{crc:08x}")
    gpu.free(address)
    return found


def main(argv: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("recorded"))
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    with Gpu() as gpu:
        found = {name: checksums(gpu, instruction) for name, instruction in INSTRUCTIONS.items()}
    (args.out / "mufu_crc.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
