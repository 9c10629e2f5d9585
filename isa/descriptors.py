"""Descriptors of tcgen05.mma: the 32-bit instruction descriptor and the 64-bit matrix descriptor (PTX ISA 9.7.16.4).

`instruction_fields` and `problem_of` are plain functions of integers: the machine compiles the same ones (emu.units.tcgen05).
"""

from __future__ import annotations

KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
K_F16, K_TF32, K_F8F6F4, K_I8, K_MXF8F6F4, K_MXF4, K_MXF4NVF4 = range(7)
BLOCK_SCALED = range(K_MXF8F6F4, K_MXF4NVF4 + 1)
D_F16, D_F32, D_S32 = range(3)
D_TYPES = ("f16", "f32", "s32")
# Element types, in the machine's numbering (emu.units.tensor_panels); "packed" is e2m1, two a byte.
ELEMENTS = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "e2m3", "e3m2", "e2m1", "packed")
E_E2M3, E_PACKED = ELEMENTS.index("e2m3"), ELEMENTS.index("packed")
# Element type of the codes 0 to 7 in a descriptor, 15: none.
NO = 15
CODES = (
    (0, 1, NO, NO, NO, NO, NO, NO),  # f16
    (NO, NO, 2, NO, NO, NO, NO, NO),  # tf32
    (3, 4, NO, 7, 8, 9, NO, NO),  # f8f6f4
    (6, 5, NO, NO, NO, NO, NO, NO),  # i8
    (3, 4, NO, 7, 8, 9, NO, NO),  # mxf8f6f4
    (NO, 10, NO, NO, NO, NO, NO, NO),  # mxf4
    (NO, 10, NO, NO, NO, NO, NO, NO),  # mxf4nvf4
)

# What the micro-operation's immediate says beside the descriptor: bits of the tcgen05.mma word.
WORD_A_TENSOR, WORD_WS, WORD_MASK = 1 << 4, 1 << 5, 1 << 6  # A in Tensor Memory; .ws; disable-output-lane is given
WORD_PAIR = 1 << 7  # cta_group::2
WORD_BLOCKS, WORD_SCALE_D, WORD_COLLECTOR = (
    8,
    12,
    16,
)  # fields: scale vectors an instruction - 1; scale-input-d; collector hint

# Why an instruction descriptor is wrong, by number: the field and a remedy.
PROBLEMS = (
    ("", ""),
    ("reserved bits are set", "bits 6, 23 and 29 are 0, in block-scaled kinds 6 and 31 (K = 96 of sm_103a is not implemented)"),
    ("the sparsity bits are set", "bits 0 to 2 belong to tcgen05.mma.sp"),
    ("the type of D (bits 4-5) does not go with the kind", "0 f16 and 1 f32 with f16 and f8f6f4 (bf16: 1), 1 with tf32, 2 with i8"),
    ("the type of A (bits 7-9) is none of the kind", "f16: 0 f16, 1 bf16; tf32: 2; f8f6f4: 0 e4m3, 1 e5m2, 3 e2m3, 4 e3m2, 5 e2m1; i8: 0 u8, 1 s8; mxf4: 1"),
    ("the type of B (bits 10-12) is none of the kind", "f16: 0 f16, 1 bf16; tf32: 2; f8f6f4: 0 e4m3, 1 e5m2, 3 e2m3, 4 e3m2, 5 e2m1; i8: 0 u8, 1 s8; mxf4: 1"),
    ("M does not exist", "bits 24-28 are M >> 4 of 64 or 128 (.ws: 32, 64, 128; cta_group::2: 128, 256); block-scaled kinds: bits 27-28 are M >> 7 of 128 (or 256)"),
    ("N does not exist", "bits 17-22 are N >> 3 of 8 to 256 (i8: 8, 16, 24, 32, 48, 64, ...; .ws: 64, 128, 256; cta_group::2: multiples of 16, i8 32)"),
    ("a transpose bit (15 A, 16 B) is set for a type that is K-major only", "only f16, bf16, tf32 and 8-bit types may be MN-major"),
    ("a negate bit (13 A, 14 B) is set with integers", "clear it"),
    ("the saturate bit (3) is set without integers", "clear it"),
    ("the scale type (bit 23) does not go with the kind", "1 ue8m0 with mxf8f6f4, mxf4 and two scales a row; 0 ue4m3 or 1 ue8m0 with four"),
    ("a scale-factor id (29-30 A, 4-5 B) does not exist", "0 to 3 with one scale a row, 0 or 2 with two, 0 with four"),
    ("the shift (bits 30-31) is for .ws alone", "clear it"),
)  # fmt: skip
(
    P_NONE, P_RESERVED, P_SPARSE, P_D, P_A, P_B, P_M, P_N, P_TRANSPOSE, P_NEGATE, P_SATURATE, P_SCALE_TYPE, P_SCALE_ID, P_SHIFT,
) = range(14)  # fmt: skip


def kind_of(word: int) -> int:
    """The kind of a tcgen05.mma word."""
    return word & 15


def blocks_of(word: int) -> int:
    """Blocks of K with a scale each; 0 without scales."""
    return (word >> 8 & 3) + 1 if word & 15 >= K_MXF8F6F4 else 0


def element_of(kind: int, code: int) -> int:
    """The element type of a code of a kind, NO for none."""
    return CODES[kind][code]


def rows_of(kind: int, idesc: int) -> int:
    """M."""
    return (idesc >> 27 & 3) << 7 if kind >= K_MXF8F6F4 else (idesc >> 24 & 31) << 4


def columns_of(idesc: int) -> int:
    """N."""
    return (idesc >> 17 & 63) << 3


def d_type_of(kind: int, idesc: int) -> int:
    """The type of D: block-scaled kinds always have f32."""
    return D_F32 if kind >= K_MXF8F6F4 else idesc >> 4 & 3


def types_of(kind: int, idesc: int) -> tuple[int, int]:
    """Element types of A and B, NO for none."""
    if kind == K_MXF4 or kind == K_MXF4NVF4:
        return element_of(kind, idesc >> 7 & 7), element_of(kind, idesc >> 10 & 3)
    return element_of(kind, idesc >> 7 & 7), element_of(kind, idesc >> 10 & 7)


def _shape_problem(kind: int, ws: bool, pair: bool, m: int, n: int) -> int:
    """M and N against 9.7.16.2.1."""
    if pair:
        if m != 128 and m != 256:
            return P_M
        return P_N if n < 16 or n > 256 or n % (32 if kind == K_I8 else 16) else P_NONE
    if ws:
        if m != 32 and m != 64 and m != 128:
            return P_M
        return P_NONE if n == 64 or n == 128 or n == 256 else P_N
    if m != 128 and (m != 64 or kind >= K_MXF8F6F4):
        return P_M
    if n < 8 or n > 256:
        return P_N
    return P_N if kind == K_I8 and n > 32 and n % 16 else P_NONE


def _scale_problem(kind: int, blocks: int, idesc: int) -> int:
    """Scale type and ids of block-scaled kinds."""
    ue8m0, id_a, id_b = idesc >> 23 & 1, idesc >> 29 & 3, idesc >> 4 & 3
    if not ue8m0 and (kind != K_MXF4NVF4 or blocks != 4):
        return P_SCALE_TYPE
    if id_a % blocks or id_b % blocks:
        return P_SCALE_ID
    return P_NONE


def problem_of(word: int, idesc: int) -> int:
    """The number of what is wrong with an instruction descriptor (`PROBLEMS`), 0 for nothing."""
    kind, scaled = word & 15, word & 15 >= K_MXF8F6F4
    ws, d = word & WORD_WS != 0, d_type_of(kind, idesc)
    a, b = types_of(kind, idesc)
    if (
        idesc >> 6 & 1
        or (not scaled and idesc >> 23 & 1)
        or (not scaled and idesc >> 29 & 1)
        or (scaled and idesc >> 31 & 1)
    ):
        return P_RESERVED
    if idesc & 7:
        return P_SPARSE
    if a == NO:
        return P_A
    if b == NO:
        return P_B
    if kind == K_I8 and d != D_S32 or kind == K_TF32 and d != D_F32 or kind != K_I8 and d > D_F32:
        return P_D
    if d == D_F16 and (a == 1 or b == 1):
        return P_D
    if idesc >> 15 & 1 and a >= E_E2M3 or idesc >> 16 & 1 and b >= E_E2M3:
        return P_TRANSPOSE
    if kind == K_I8 and idesc >> 13 & 3:
        return P_NEGATE
    if kind != K_I8 and idesc >> 3 & 1:
        return P_SATURATE
    if not scaled and not ws and idesc >> 30 & 3:
        return P_SHIFT
    wrong = _shape_problem(kind, ws, word & WORD_PAIR != 0, rows_of(kind, idesc), columns_of(idesc))
    if wrong:
        return wrong
    return _scale_problem(kind, blocks_of(word), idesc) if scaled else P_NONE


# ---- matrix descriptor ----------------------------------------------------------------------------------

SWIZZLES = ("none", "128B with 32B atoms", "128B", "", "64B", "", "32B", "")
VERSION = 1  # bits 46-48
# Why a matrix descriptor is wrong, by number.
MATRIX_PROBLEMS = (
    ("", ""),
    ("the version (bits 46-48) is not 1", "set bit 46; a descriptor of wgmma has 0 there and other swizzle codes"),
    ("the swizzle (bits 61-63) does not exist", "0 none, 1 128B with 32B atoms, 2 128B, 4 64B, 6 32B"),
    ("bit 52 or bits 53-60 are set", "they are 0; absolute leading-dimension addresses exist on sm_103a only"),
    ("128B with 32B atoms is for MN-major tf32, which has no other swizzle", "use code 1 with it, and codes 0, 2, 4, 6 otherwise"),
)  # fmt: skip
M_NONE, M_VERSION, M_SWIZZLE, M_RESERVED, M_ATOM = range(5)


def matrix_problem(desc: int, element: int, transpose: int) -> int:
    """The number of what is wrong with a matrix descriptor (`MATRIX_PROBLEMS`) of an operand, 0 for nothing."""
    code = desc >> 61 & 7
    if desc >> 46 & 7 != VERSION:
        return M_VERSION
    if code == 3 or code == 5 or code == 7:
        return M_SWIZZLE
    if desc >> 52 & 0x1FF:
        return M_RESERVED
    if (code == 1) != (transpose != 0 and element == 2):
        return M_ATOM
    return M_NONE


def matrix_descriptor(start: int, *, lbo: int = 0, sbo: int = 0, swizzle: str = "128B", base: int = 0) -> int:
    """The 64-bit descriptor of a matrix in shared memory; addresses and offsets in bytes, multiples of 16 (9.7.16.4.1)."""
    for value in (start, lbo, sbo):
        if value % 16 or not 0 <= value < 1 << 18:
            raise ValueError(f"{value} is no multiple of 16 below 2^18")
    if swizzle not in SWIZZLES or not swizzle:
        raise ValueError(f"swizzle '{swizzle}' is none of {', '.join(name for name in SWIZZLES if name)}")
    fields = start >> 4 | (lbo >> 4) << 16 | (sbo >> 4) << 32 | VERSION << 46 | (base & 7) << 49
    return fields | SWIZZLES.index(swizzle) << 61


def instruction_descriptor(
    kind: str,
    a: str,
    b: str,
    m: int,
    n: int,
    *,
    d: str = "f32",
    negate_a: bool = False,
    negate_b: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
    saturate: bool = False,
    scale_type: str = "ue8m0",
    scale_a: int = 0,
    scale_b: int = 0,
) -> int:
    """The 32-bit descriptor of a dense product of a kind ("f16", "mxf4", ...) by the names of its types (9.7.16.4.2)."""
    k = KINDS.index(kind)
    e2m1 = "packed" if k in (K_MXF4, K_MXF4NVF4) else "e2m1"
    codes = [CODES[k].index(ELEMENTS.index(e2m1 if name == "e2m1" else name)) for name in (a, b)]
    flags = negate_a << 13 | negate_b << 14 | transpose_a << 15 | transpose_b << 16 | saturate << 3
    fields = codes[0] << 7 | codes[1] << 10 | flags | (n >> 3) << 17
    if k >= K_MXF8F6F4:
        return fields | scale_b << 4 | (scale_type == "ue8m0") << 23 | (m >> 7) << 27 | scale_a << 29
    return fields | D_TYPES.index(d) << 4 | (m >> 4) << 24


# What the machine compiles.
MACHINE = (
    kind_of, blocks_of, element_of, rows_of, columns_of, d_type_of, types_of, _shape_problem, _scale_problem, problem_of, matrix_problem,
)  # fmt: skip
