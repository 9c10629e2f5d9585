"""Matrix products of a warp with opaque fragments: `wmma` (PTX ISA 9.7.14.4).

PTX leaves the layout of fragments open.  Here, as `ptxas` does it from sm_80 on, they are those of mma.sync m16n8k16: a register of A (B)
holds 8 rows (columns) x 16 bytes of K, row l / 4 in lane l.  m8n32k16 is computed transposed, with A and B exchanged.
f16 fragments always have eight registers; those beyond the needed ones repeat them.
"""

from __future__ import annotations

from isa.micro import Micro
from isa.ops.address import generic_whole, offset_of
from isa.ops.integer import IADD3, IADD3_CC, IADD3_X, IMAD, IMAD_WIDE_U32
from isa.ops.memory import LD, LDG, LDS, LDS_64, ST, STG, STS, STS_64, memory_word
from isa.ops.mma import BITS, MOVM, mma_op, mma_word
from isa.ops.move import MOV, PRMT
from isa.ops.shift import SHF_R_U32
from isa.ops.special import S2R, SPECIAL
from isa.registry import Const, Emitter, Match, Value, instruction

SHAPES = {"m16n16k16": (16, 16), "m32n8k16": (32, 8), "m8n32k16": (8, 32)}
K = 16
Spot = tuple[int, int]  # (row or column of the operand, group of 16 bytes of K) where a register begins


class Memory:
    """The matrix in memory from the point of view of a lane: `line` and `byte` say where its first element is.

    `line`: lines down, `byte`: bytes along for each step of (l / 4, l % 4).  Lines are `stride` elements of `size` bytes apart.
    """

    def __init__(
        self, e: Emitter, m: Match, size: int, default: int, line: tuple[int, int], byte: tuple[int, int]
    ) -> None:
        self.e = e
        self.space = next((w.split("::")[0] for w in m.mods if w.split("::")[0] in ("shared", "global")), "")
        lane, group, member = e.tmp(), e.tmp(), e.tmp()
        e(S2R, lane, imm=SPECIAL.index("%laneid"))
        e(SHF_R_U32, group, lane, Const(2))
        e(IMAD, member, group, Const(-4 & 0xFFFFFFFF), lane)
        self.stride: Value = Const(default * size)
        if m.stride is not None:
            self.stride = e.tmp()
            e(IMAD, self.stride, m.stride, Const(size), Const(0))
        down, along = (self._combine(group, member, steps) for steps in (line, byte))
        start = e.tmp()
        if self.space == "shared":
            e(IMAD, start, down, self.stride, along)
            self.base: Value = e.tmp()
            self.offset = offset_of(e, m.a)
            e(IADD3, self.base, start, m.a.base)
        else:
            wide, self.base, carry, self.offset = e.tmp("d"), e.tmp("d"), e.tmp("p"), 0
            e(IMAD_WIDE_U32, wide, down, self.stride, generic_whole(e, m.a))
            e(IADD3_CC, (e.lo(self.base), carry), e.lo(wide), along)
            e(IADD3_X, e.hi(self.base), e.hi(wide), Const(0), carry)
        self.lines: dict[int, Value] = {0: self.base}

    def _combine(self, group: Value, member: Value, steps: tuple[int, int]) -> Value:
        """steps[0] * group + steps[1] * member."""
        total: Value = Const(0)
        for value, step in zip((group, member), steps, strict=True):
            if step:
                sum_ = self.e.tmp()
                self.e(IMAD, sum_, value, Const(step), total)
                total = sum_
        return total

    def at(self, line: int, byte: int) -> tuple[Value, int]:
        """Base and offset `line` lines down and `byte` bytes along."""
        if isinstance(self.stride, Const):
            return self.base, self.offset + line * self.stride.bits + byte
        if line not in self.lines:
            if self.space == "shared":
                self.lines[line] = self.e.tmp()
                self.e(IMAD, self.lines[line], self.stride, Const(line), self.base)
            else:
                self.lines[line] = self.e.tmp("d")
                self.e(IMAD_WIDE_U32, self.lines[line], self.stride, Const(line), self.base)
        return self.lines[line], self.offset + byte

    def move(self, rows: list[Value], line: int, byte: int, size: int, store: bool = False) -> None:
        """Load (store) the registers `rows`, each of `size` bytes."""
        base, offset = self.at(line, byte)
        one, two = {"shared": (STS, STS_64), "global": (STG, STG), "": (ST, ST)}[self.space]
        if not store:
            one, two = {"shared": (LDS, LDS_64), "global": (LDG, LDG), "": (LD, LD)}[self.space]
        op: Micro = two if len(rows) == 2 else one
        word = memory_word(offset, size, len(rows))
        if store:
            self.e(op, None, base, rows, imm=word)
        else:
            self.e(op, rows, base, imm=word)


def spots(extent: int, narrow: bool, bits: int) -> list[Spot]:
    """The registers of an operand of `extent` rows (columns): as mma's B when `narrow`, else as its A."""
    groups = K * bits // 128
    if narrow:
        return [(8 * tile, group) for tile in range(extent // 8) for group in range(groups)]
    return [(16 * tile + 8 * high, group) for tile in range(extent // 16) for group in range(groups) for high in (0, 1)]


def _operand(shape: str, which: str, type_: str) -> tuple[int, list[Spot], int]:
    """Extent, distinct registers, and how many registers the fragment of A or B has."""
    rows, columns = SHAPES[shape]
    transposed = shape == "m8n32k16"
    extent, narrow = (rows, transposed) if which == "a" else (columns, not transposed)
    found = spots(extent, narrow, BITS[type_])
    return extent, found, 8 if type_ == "f16" else len(found)


_SETS = {
    "WHICH": (".a", ".b"),
    "LAYOUT": (".row", ".col"),
    "SHAPE": tuple(f".{shape}" for shape in SHAPES),
    "SPACE": (".global", ".shared", ".shared::cta"),
    "TYPE": (".f16", ".bf16", ".s8", ".u8"),
    "CTYPE": (".f16", ".f32", ".s32"),
}


@instruction(
    "wmma.load.WHICH.sync.aligned.LAYOUT.SHAPE{.SPACE}.TYPE {d}, [a]{, stride};",
    sets=_SETS,
    types={"d": "vec:b32", "stride": "u32"},
)
def load(e: Emitter, m: Match) -> None:
    """d = the warp's fragment of A (rows x 16) or B (16 x columns) at `a` (PTX ISA 9.7.14.4.3).

    `stride`: elements from one row (.row) or column (.col) to the next.
    """
    which, type_ = m["WHICH"], m["TYPE"]
    extent, found, count = _operand(m["SHAPE"], which, type_)
    if len(m.d) != count:
        raise e.error(f"this fragment has {count} registers, found {len(m.d)}", operand=m.operand("d"))
    d = [x if x is not None else e.tmp() for x in m.d]
    size = BITS[type_] // 8
    along = (m["LAYOUT"] == "row") == (which == "a")  # memory runs along K
    if along:
        memory = Memory(e, m, size, K, (1, 0), (0, 4))
        for register, (row, group) in zip(d, found, strict=False):
            memory.move([register], row, 16 * group, 4)
    elif size == 2:
        memory = Memory(e, m, size, extent, (1, 0), (0, 4))
        for register, (row, group) in zip(d, found, strict=False):
            turned = e.tmp()
            memory.move([turned], 8 * group, 2 * row, 4)
            e(MOVM, register, turned)
    else:
        memory = Memory(e, m, size, extent, (0, 4), (1, 0))
        for register, (row, _) in zip(d, found, strict=False):
            parts: list[Value] = [e.tmp() for _ in range(4)]
            for k, part in enumerate(parts):
                memory.move([part], k, row, 1)
            low, high = e.tmp(), e.tmp()
            e(PRMT, low, parts[0], parts[1], Const(0x5540))
            e(PRMT, high, parts[2], parts[3], Const(0x5540))
            e(PRMT, register, low, high, Const(0x5410))
    for k in range(len(found), count):
        e(MOV, d[k], d[k % len(found)])


def _accumulator(e: Emitter, m: Match, values: list[Value], type_: str, store: bool) -> None:
    """Load or store the accumulators: two tiles of m16n8 side by side, above each other, or (m8n32) transposed."""
    shape = m["SHAPE"]
    rows, columns = SHAPES[shape]
    transposed = shape == "m8n32k16"
    row_major = m["LAYOUT"] == "row"
    default = columns if row_major else rows
    half = type_ == "f16"
    if len(values) != (4 if half else 8):
        raise e.error(f"this fragment has {4 if half else 8} registers, found {len(values)}")
    down, right = (0, 8) if shape == "m16n16k16" else (16, 0)  # from the first tile of m16n8 to the second
    direct = row_major != transposed  # a lane's two columns are neighbours in memory
    size = 2 if half else 4
    if direct or half:
        memory = Memory(e, m, size, default, (1, 0), (0, 2 * size))
    else:
        memory = Memory(e, m, size, default, (0, 2), (size, 0))
    for tile in range(2):
        for high in range(2):
            row, column = tile * down + 8 * high, tile * right
            if half:
                register = values[2 * tile + high]
                _pairs(e, memory, register, (row, column) if direct else (column, row), direct, store)
            elif direct:
                memory.move(values[4 * tile + 2 * high : 4 * tile + 2 * high + 2], row, size * column, 4, store)
            else:
                for k in range(2):
                    memory.move([values[4 * tile + 2 * high + k]], column + k, size * row, 4, store)


def _pairs(e: Emitter, memory: Memory, register: Value, at: tuple[int, int], direct: bool, store: bool) -> None:
    """A register of f16 pairs, turned on the way when memory does not run along the pairs."""
    line, byte = at[0], 2 * at[1]
    if direct:
        memory.move([register], line, byte, 4, store)
        return
    turned = e.tmp()
    if store:
        e(MOVM, turned, register)
        memory.move([turned], line, byte, 4, store)
    else:
        memory.move([turned], line, byte, 4)
        e(MOVM, register, turned)


@instruction(
    "wmma.load.c.sync.aligned.LAYOUT.SHAPE{.SPACE}.CTYPE {d}, [a]{, stride};",
    sets=_SETS,
    types={"d": "vec:b32", "stride": "u32"},
)
def load_c(e: Emitter, m: Match) -> None:
    """d = the warp's fragment of C at `a` (PTX ISA 9.7.14.4.3)."""
    _accumulator(e, m, [x if x is not None else e.tmp() for x in m.d], m["CTYPE"], store=False)


@instruction(
    "wmma.store.d.sync.aligned.LAYOUT.SHAPE{.SPACE}.CTYPE [a], {b}{, stride};",
    sets=_SETS,
    types={"b": "vec:b32", "stride": "u32"},
)
def store_d(e: Emitter, m: Match) -> None:
    """The warp's fragment `b` of D to memory at `a` (PTX ISA 9.7.14.4.4)."""
    _accumulator(e, m, list(m.b), m["CTYPE"], store=True)


def mma(e: Emitter, m: Match) -> None:
    """D = A * B + C on fragments, two products of mma.sync (PTX ISA 9.7.14.4.5)."""
    shape = next(word for word in m.mods if word in SHAPES)
    types = m.types if len(m.types) == 4 else (m.types[0], "f16", "f16", m.types[1])
    d_type, kind, _, c_type = types
    of_a, of_b = (K * BITS[kind] // 64, K * BITS[kind] // 128)  # registers of mma's A and B
    first, second = (m.b, m.a) if shape == "m8n32k16" else (m.a, m.b)
    satfinite = m.has(".satfinite") and kind in ("s8", "u8")
    word = mma_word(K, kind, kind, d_f16=d_type == "f16", c_f16=c_type == "f16", satfinite=satfinite)
    d = [x if x is not None else e.tmp() for x in m.d]
    wide, old = len(d) // 2, len(m.c) // 2
    results = [[e.tmp() for _ in range(wide)] for _ in range(2)]
    for tile in range(2):
        a = first if shape == "m16n16k16" else first[of_a * tile : of_a * (tile + 1)]
        b = second[of_b * tile : of_b * (tile + 1)] if shape == "m16n16k16" else second
        sources = [*a[:of_a], *b[:of_b], *m.c[old * tile : old * (tile + 1)]]
        e(mma_op(K, kind), results[tile], sources, imm=word)
    for register, value in zip(d, (x for tile in results for x in tile), strict=True):
        e(MOV, register, value)


def _declare() -> None:
    """The forms of wmma.mma: fragments have a length of their own for each shape and type."""
    head, operands = "wmma.mma.sync.aligned.{row,col}.{row,col}", "{d}, {a}, {b}, {c};"
    for shape in SHAPES:
        for d_type in ("f16", "f32"):
            for c_type in ("f16", "f32"):
                kinds = {"a": "vec:b32:8", "b": "vec:b32:8"}
                kinds |= {
                    name: f"vec:{'b32:4' if t == 'f16' else 'f32:8'}" for name, t in (("d", d_type), ("c", c_type))
                }
                instruction(f"{head}.{shape}.{d_type}.{c_type}{{.satfinite}} {operands}", types=kinds)(mma)
        for kind, wide in (("bf16", "f32"), ("s8", "s32"), ("u8", "s32")):
            kinds = {which: f"vec:b32:{_operand(shape, which, kind)[2]}" for which in "ab"}
            kinds |= dict.fromkeys("dc", f"vec:{wide}:8")
            tail = "{.satfinite}" if wide == "s32" else ""
            instruction(f"{head}.{shape}.{wide}.{kind}.{kind}.{wide}{tail} {operands}", types=kinds)(mma)


_declare()
