"""The vector side of lane micro-operations: `isa.micro.VectorBuilder` over LLVM vectors.

A warp's 32 lanes are one LLVM vector, so an emission compiles to a handful of SIMD instructions whatever the
host's width.  Types are named as in `isa.micro`; a name that ends in `x2` has 64 elements: the two 16-bit
halves of every 32-bit lane (`bits(x, "u16x2")`), or what they widen to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from llvmlite import ir

LANES = 32
SCALARS = {
    "pred": ir.IntType(1),
    "u8": ir.IntType(8),
    "u16": ir.IntType(16),
    "u32": ir.IntType(32),
    "u64": ir.IntType(64),
    "f16": ir.HalfType(),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
INTRINSICS = frozenset(("rint", "floor", "ceil", "trunc", "sqrt", "log2", "ctpop", "ctlz", "bitreverse"))
INTRINSICS |= frozenset(("umin", "umax", "smin", "smax", "minimumnum", "maximumnum"))


def vector_type(name: str, lanes: int = LANES) -> ir.VectorType:
    """The LLVM vector of a type name: `u32` is <32 x i32>, `f32x2` is <64 x float>."""
    base, _, twice = name.partition("x")
    return ir.VectorType(SCALARS[base], 2 * lanes if twice else lanes)


class Splat(ir.Constant):
    """A constant vector of equal elements; its text stays one element long, which LLVM parses fastest."""

    def __init__(self, type: ir.VectorType, value: float) -> None:
        super().__init__(type, None)
        self.scalar = ir.Constant(type.element, value)

    def _get_reference(self) -> str:
        return f"splat ({self.scalar.type} {self.scalar.get_reference()})"


def splat_constant(type: ir.VectorType, value: float) -> ir.Constant:
    """`value` in every element; integers may be negative or unsigned."""
    scalar = type.element
    if isinstance(scalar, ir.IntType):
        value = int(value) & ((1 << scalar.width) - 1)
    return Splat(type, value)


class LlvmVectors:
    """Builds vector operations at the position of an llvmlite `IRBuilder`; see `isa.micro.VectorBuilder`."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    # ---- constants and immediates ----

    def const(self, value: float, type: str = "u32") -> ir.Value:
        return splat_constant(vector_type(type), value)

    def splat(self, scalar: ir.Value, type: str = "u32") -> ir.Value:
        """The immediate (a 64-bit scalar), truncated to `type` in every lane."""
        b, vector = self.builder, vector_type(type)
        value = scalar if scalar.type == vector.element else b.trunc(scalar, vector.element)
        seed = b.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
        return b.shuffle_vector(seed, ir.Constant(vector, ir.Undefined), zeros)

    def flag(self, scalar: ir.Value, bit: int) -> ir.Value:
        """Bit `bit` of the immediate as a condition for `select`, the same in every lane."""
        b = self.builder
        return b.trunc(b.lshr(scalar, ir.Constant(scalar.type, bit)), ir.IntType(1))

    # ---- bits and integers ----

    def bits(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.bitcast(x, vector_type(type))

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.add(x, y)

    def sub(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.sub(x, y)

    def mul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.mul(x, y)

    def and_(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.and_(x, y)

    def or_(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.or_(x, y)

    def xor(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.xor(x, y)

    def not_(self, x: ir.Value) -> ir.Value:
        return self.builder.xor(x, splat_constant(x.type, -1))

    def shl(self, x: ir.Value, n: ir.Value) -> ir.Value:
        return self.builder.shl(x, n)

    def lshr(self, x: ir.Value, n: ir.Value) -> ir.Value:
        return self.builder.lshr(x, n)

    def ashr(self, x: ir.Value, n: ir.Value) -> ir.Value:
        return self.builder.ashr(x, n)

    # ---- comparison and choice ----

    def icmp(self, cmp: str, x: ir.Value, y: ir.Value, signed: bool = False) -> ir.Value:
        compare = self.builder.icmp_signed if signed else self.builder.icmp_unsigned
        return compare(cmp, x, y)

    def fcmp(self, cmp: str, x: ir.Value, y: ir.Value, ordered: bool = True) -> ir.Value:
        compare = self.builder.fcmp_ordered if ordered else self.builder.fcmp_unordered
        return compare(cmp, x, y)

    def isnan(self, x: ir.Value) -> ir.Value:
        return self.builder.fcmp_unordered("uno", x, x)

    def select(self, p: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.select(p, x, y)

    # ---- floating point (IEEE, round to nearest even, subnormals kept) ----

    def fadd(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fadd(x, y)

    def fsub(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fsub(x, y)

    def fmul(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fmul(x, y)

    def fdiv(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return self.builder.fdiv(x, y)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        return self._intrinsic("fma", x.type, x, y, z)

    def fabs(self, x: ir.Value) -> ir.Value:
        return self._intrinsic("fabs", x.type, x)

    def fneg(self, x: ir.Value) -> ir.Value:
        return self.builder.fneg(x)

    def call(self, name: str, *args: ir.Value) -> ir.Value:
        if name not in INTRINSICS:
            raise ValueError(f"no vector operation named {name}")
        return self._intrinsic(name, args[0].type, *args)

    # ---- conversions ----

    def zext(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.zext(x, vector_type(type))

    def sext(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.sext(x, vector_type(type))

    def trunc(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.trunc(x, vector_type(type))

    def fext(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.fpext(x, vector_type(type))

    def ftrunc(self, x: ir.Value, type: str) -> ir.Value:
        return self.builder.fptrunc(x, vector_type(type))

    def from_int(self, x: ir.Value, type: str, signed: bool) -> ir.Value:
        convert = self.builder.sitofp if signed else self.builder.uitofp
        return convert(x, vector_type(type))

    def to_int(self, x: ir.Value, type: str, signed: bool) -> ir.Value:
        convert = self.builder.fptosi if signed else self.builder.fptoui
        return convert(x, vector_type(type))

    def cast_pred(self, p: ir.Value, type: str) -> ir.Value:
        return self.builder.zext(p, vector_type(type))

    # ---- movement between elements ----

    def permute(self, x: ir.Value, lanes: list[int]) -> ir.Value:
        return self._shuffle(x, x, lanes)

    def pair(self, low: ir.Value, high: ir.Value) -> ir.Value:
        """The integer of twice the width from its halves: u32 -> u64, u16 or f16 -> u32."""
        order = [k // 2 + LANES * (k % 2) for k in range(2 * LANES)]
        wide = {32: "u64", 16: "u32"}[16 if low.type.element == SCALARS["f16"] else low.type.element.width]
        return self.builder.bitcast(self._shuffle(low, high, order), vector_type(wide))

    def halves(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The low and high u32 halves of a 64-bit value."""
        words = self.builder.bitcast(x, vector_type("u32x2"))
        even = list(range(0, 2 * LANES, 2))
        return self._shuffle(words, words, even), self._shuffle(words, words, [k + 1 for k in even])

    def lookup(self, table: Sequence[int], index: ir.Value) -> ir.Value:
        """Entries of a constant table, u64 lanes; u32 indices must be below its length.

        The table is a private constant of the module, named by its content: every use shares it.
        """
        b, entry = self.builder, ir.IntType(64)
        type = ir.ArrayType(entry, len(table))
        name = f"table.{hashlib.sha256(str(tuple(table)).encode()).hexdigest()[:16]}"
        data = b.module.globals.get(name)
        if data is None:
            data = ir.GlobalVariable(b.module, type, name)
            data.initializer = ir.Constant(type, [x & ((1 << 64) - 1) for x in table])
            data.linkage, data.global_constant, data.align = "private", True, 64
        address = b.ptrtoint(data, entry)
        places = b.add(self.splat(address, "u64"), b.shl(b.zext(index, vector_type("u64")), self.const(3, "u64")))
        pointers = b.inttoptr(places, ir.VectorType(entry.as_pointer(), LANES))
        all_lanes, none = self.const(1, "pred"), ir.Constant(vector_type("u64"), ir.Undefined)
        signature = ir.FunctionType(vector_type("u64"), [pointers.type, ir.IntType(32), all_lanes.type, none.type])
        full = f"llvm.masked.gather.v{LANES}i64.v{LANES}p0"
        function = b.module.globals.get(full) or ir.Function(b.module, signature, full)
        return b.call(function, [pointers, ir.Constant(ir.IntType(32), 8), all_lanes, none])

    def _shuffle(self, x: ir.Value, y: ir.Value, order: list[int]) -> ir.Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order)
        return self.builder.shuffle_vector(x, y, mask)

    def _intrinsic(self, name: str, type: ir.VectorType, *args: ir.Value) -> ir.Value:
        values = list(args)
        if name == "ctlz":
            values.append(ir.Constant(ir.IntType(1), 0))
        scalar = {"half": "f16", "float": "f32", "double": "f64"}.get(str(type.element), str(type.element))
        full = f"llvm.{name}.v{type.count}{scalar}"
        function = self.builder.module.globals.get(full)
        if function is None:
            signature = ir.FunctionType(type, [value.type for value in values])
            function = ir.Function(self.builder.module, signature, full)
        return self.builder.call(function, values)
