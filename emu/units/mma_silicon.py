"""mma.sync bit for bit: its fragments as the panels of emu.units.tensor_silicon, which does the arithmetic."""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from emu.llvm import F32, I16, I32, I64, load, offset, pick, splat, store, vector
from emu.units.tensor_panels import KIND_BF16, KIND_F16, KIND_TF32, PANEL_ORDER
from emu.units.tensor_silicon import FULL, fused_rows, split

ROW = 128  # bytes of a register row
PANEL = 16 * 32  # bytes: 16 steps of 8 values
_EXPONENTS = 3 * PANEL  # behind the panels of A's rows 0 to 7, 8 to 15, and of B
_SPREAD = 6 * PANEL
_OFFSETS = _SPREAD + 2 * ROW * 16
WORK_BYTES = _OFFSETS + 64
LEAST_STEPS = 8  # of a fused product; further ones of m16n8k4 are zeros, which do not take part


def panels(elements: Any, per: dict[int, int], cases: set[tuple[int, int]]) -> Any:
    """An intrinsic (kind, k, window, rows, panel) that writes A's and B's panels.

    elements: emits the float32 values of a register's elements (emu.units.mma).  per: elements a register, by kind.
    rows: address of the row numbers of A and B.
    """

    def emit_case(b: Any, kind: int, k: int, register: Any, panel: Any) -> None:
        groups = k // (4 * per[kind])
        places = [(part, group, 2 * group + part) for group in range(groups) for part in (0, 1)]
        places += [(2, group, 2 * groups + group) for group in range(groups)]
        for part, group, number in places:
            for e, values in enumerate(elements(b, kind, register(number), None)):
                for q in range(4):
                    step = (4 * group + q) * per[kind] + e
                    value = pick(b, values, [4 * row + q for row in PANEL_ORDER])
                    store(b, value, offset(b, panel, part * PANEL + 32 * step), 32)
        for step in range(k, LEAST_STEPS):
            for part in range(3):
                store(b, splat(vector(F32, 8), 0.0), offset(b, panel, part * PANEL + 32 * step), 32)

    @intrinsic
    def write(typing: Any, kind: Any, k: Any, window: Any, rows: Any, panel: Any) -> Any:
        def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
            kind, k, window, rows, panel = args

            def register(n: int) -> Any:
                number = b.zext(load(b, offset(b, rows, 2 * n), I16, 2), I64)
                return load(b, b.add(window, b.shl(number, I64(7))), vector(I32, 32), 32)

            end = b.append_basic_block("panels.end")
            switch = b.switch(b.or_(b.shl(kind, I64(8)), k), end)
            for case in sorted(c for c in cases if c[0] in (KIND_F16, KIND_BF16, KIND_TF32)):
                block = b.append_basic_block(f"panels.{case[0]}.{case[1]}")
                switch.add_case(ir.Constant(I64, case[0] << 8 | case[1]), block)
                b.position_at_end(block)
                emit_case(b, *case, register, panel)
                b.branch(end)
            b.position_at_end(end)
            return ctx.get_dummy_value()

        i = types.int64
        return types.void(i, i, i, i, i), emit

    return write


@intrinsic
def _two_rows(typing: Any, offsets: Any) -> Any:
    """Offsets of the column vectors of D's 8 columns: two neighbouring rows."""

    def emit(ctx: Any, b: Any, sig: Any, args: Any) -> Any:
        store(b, ir.Constant(vector(I32, 2), [0, ROW]), args[0], 4)
        return ctx.get_dummy_value()

    return types.void(types.int64), emit


@njit(error_model="numpy")
def fused_product(kind: int, k: int, fraction: int, half: int, work: int, into: int) -> None:
    """Two fused dot products of 8 x 8 results on the panels at `work` (WORK_BYTES, 64-byte aligned).

    into: address of four float32 rows: C, then D (low rows at both column parities, high rows).  fraction, half: as
    `fraction` and `f16_d` of `fused_rows`.
    """
    steps = max(k, LEAST_STEPS)
    _two_rows(work + _OFFSETS)
    for part in range(3):
        split(kind, steps, work + part * PANEL, work + _EXPONENTS + part * PANEL)
    for part in range(2):
        a, b = work + part * PANEL, work + 2 * PANEL
        fused_rows(
            8, steps, fraction, FULL, half, a, a + _EXPONENTS, b, b + _EXPONENTS, work + _SPREAD,
            into + 2 * part * ROW, work + _OFFSETS, 0,
        )  # fmt: skip
