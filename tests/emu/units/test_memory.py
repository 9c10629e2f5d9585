"""Loads and stores: every width in every space, bank conflicts against a brute force, matrices, and faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import emu

LANES = np.arange(32)
TYPES = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "b32": 4, "f32": 4, "b64": 8}
FORMS = [(kind, count) for kind in TYPES for count in (1, 2, 4) if TYPES[kind] * count <= 16]
SPACES = ("global", "shared", "local", "generic-global", "generic-shared", "generic-local")


def registers(kind: str, count: int) -> str:
    """Vector operand for a form; narrow types live in 32-bit registers to show their extension."""
    letter = {"f32": "f", "b64": "d"}.get(kind, "r")
    names = [f"%{letter}{20 + k}" for k in range(count)]
    return names[0] if count == 1 else "{" + ", ".join(names) + "}"


def vector(count: int) -> str:
    return f".v{count}" if count > 1 else ""


@pytest.mark.parametrize("space", SPACES)
def test_widths(ptx: Any, space: str) -> None:
    """Each lane loads its bytes from the space and stores the registers whole; then stores through the space and copies back."""
    rng = np.random.default_rng(3)
    where = space.split("-")[-1]
    short = f".{where}" if "-" not in space else ""
    source = rng.integers(0, 256, (len(FORMS), 32, 16), dtype=np.uint8)
    loaded = np.zeros((len(FORMS), 32, 4), np.uint64)
    stored = np.zeros((len(FORMS), 32, 16), np.uint8)
    text = []
    base = {"global": "add.u64 %d5, %scratch, %d0;", "shared": "mov.u32 %r1, area; cvt.u64.u32 %d5, %r1; add.u64 %d5, %d5, %d0;",
            "local": "mov.u64 %d5, mine;"}[where]  # fmt: skip
    if "-" in space and where != "global":
        base += f" cvta.{where}.u64 %d5, %d5;"
    elif where == "shared":
        base += " cvt.u32.u64 %r5, %d5;"
    address = "%r5" if space == "shared" else "%d5"
    for k, (kind, count) in enumerate(FORMS):
        size = TYPES[kind]
        text.append(f"ld.global.v2.b64 {{%d1, %d2}}, [%d10 + {512 * k}]; st{short}.v2.b64 [{address}], {{%d1, %d2}};")
        # One vector of 16 bytes has several places for a narrow form: lane l reads at (l * width) mod 16.
        text.append(f"ld{short}{vector(count)}.{kind} {registers(kind, count)}, [{address} + {16 - size * count}];")
        for q in range(count):
            letter = registers(kind, 1)[1]
            if letter == "r":
                text.append(f"cvt.u64.u32 %d7, %r{20 + q};")
            elif letter == "f":
                text.append(f"mov.b32 %r3, %f{20 + q}; cvt.u64.u32 %d7, %r3;")
            else:
                text.append(f"mov.b64 %d7, %d{20 + q};")
            text.append(f"st.global.b64 [%d11 + {1024 * k + 8 * q}], %d7;")
        stem = {"s8": "b8", "u8": "b8", "s16": "b16", "u16": "b16"}.get(kind, kind)
        text.append(
            f"mov.b64 %d3, 0; st{short}.v2.b64 [{address}], {{%d3, %d3}}; st{short}{vector(count)}.{stem} [{address} + {16 - size * count}], {registers(kind, count)};"
        )
        text.append(f"ld{short}.v2.b64 {{%d1, %d2}}, [{address}]; st.global.v2.b64 [%d12 + {512 * k}], {{%d1, %d2}};")
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 16; {base} add.u64 %d10, %source, %d0; add.u64 %d12, %stored, %d0;
        mul.wide.u32 %d0, %r0, 32; add.u64 %d11, %loaded, %d0; """ + "\n".join(text)
    shared = (
        ".shared .align 16 .b8 area[512];"
        if where == "shared"
        else ".local .align 16 .b8 mine[16];"
        if where == "local"
        else ""
    )
    result = ptx.run(
        body,
        "u64 source, u64 loaded, u64 stored, u64 scratch",
        [source, loaded, stored, np.zeros(512, np.uint8)],
        shared=shared,
    )
    assert not result.findings
    for k, (kind, count) in enumerate(FORMS):
        size = TYPES[kind]
        tail = source[k, :, 16 - size * count :].copy()
        signed = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
        expected = tail.view(signed).astype(np.int64) & (0xFFFFFFFF if size < 8 else -1)
        assert np.array_equal(loaded[k, :, :count], expected.astype(np.uint64)), (kind, count)
        assert (
            np.array_equal(stored[k, :, 16 - size * count :], tail) and not stored[k, :, : 16 - size * count].any()
        ), (kind, count)


def test_sixteen_bit_registers_and_offsets(ptx: Any) -> None:
    data = np.arange(64, dtype=np.int16) - 32
    out = np.zeros(32, np.int32)
    body = """mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 2; add.u64 %d1, %data, %d0; add.u64 %d1, %d1, 64;
        ld.global.s16 %h1, [%d1 + -64]; ld.global.u16 %h2, [%d1]; sub.s16 %h1, %h2, %h1; cvt.s32.s16 %r1, %h1;
        add.u64 %d2, %out, %d0; add.u64 %d2, %d2, %d0; st.global.s32 [%d2], %r1;"""
    ptx.run(body, "u64 data, u64 out", [data, out])
    assert (out == 32).all()


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("active", [0xFFFFFFFF, 0x0000FFFF, 0x55555555, 0x80000000])
def test_consecutive_lanes(ptx: Any, count: int, active: int) -> None:
    """Lanes side by side move as rows; the ones that are switched off keep register and memory."""
    source = np.arange(32 * count, dtype=np.uint32) + 1
    target, loaded = np.zeros_like(source), np.zeros_like(source)
    names = [f"%r{20 + k}" for k in range(count)]
    operand = registers("b32", count)
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, {4 * count}; mov.u32 %r1, 1; shl.b32 %r1, %r1, %r0;
        and.b32 %r1, %r1, {active:#x}; setp.ne.u32 %p1, %r1, 0; {" ".join(f"mov.u32 {name}, 0;" for name in names)}
        add.u64 %d1, %source, %d0; add.u64 %d2, %target, %d0; add.u64 %d3, %loaded, %d0;
        @%p1 ld.global{vector(count)}.u32 {operand}, [%d1];
        st.global{vector(count)}.u32 [%d3], {operand};
        ld.global{vector(count)}.u32 {operand}, [%d1];
        @%p1 st.global{vector(count)}.u32 [%d2], {operand};"""
    ptx.run(body, "u64 source, u64 target, u64 loaded", [source, target, loaded])
    on = np.repeat((active >> LANES) & 1, count).astype(bool)
    assert np.array_equal(target, np.where(on, source, 0)) and np.array_equal(loaded, np.where(on, source, 0))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_consecutive_lanes_off_their_alignment(ptx: Any, count: int) -> None:
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, {4 * count}; add.u64 %d1, %out, %d0;
        ld.global{vector(count)}.u32 {registers("b32", count)}, [%d1 + {4 * count - 2}];"""
    result = ptx.run(body, "u64 out", [np.zeros(64 * count, np.uint32)])
    assert [f.rule for f in result.findings] == ["MEM104"] and "lane 0," in result.findings[0].message


def test_destination_may_be_the_address(ptx: Any) -> None:
    out = np.zeros(32, np.uint32)
    body = """mov.u32 %r0, %laneid; shl.b32 %r1, %r0, 2; mov.u32 %r2, area; add.u32 %r1, %r1, %r2; add.u32 %r3, %r0, 7;
        st.shared.u32 [%r1], %r3; ld.shared.u32 %r1, [%r1]; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %out, %d0; st.global.u32 [%d1], %r1;
        mov.u64 %d2, %d1; ld.global.u32 %r4, [%d1]; st.global.u32 [%d2], %r4;"""
    ptx.run(body, "u64 out", [out], shared=".shared .align 16 .b8 area[128];")
    assert np.array_equal(out, LANES + 7)


# ---- bank conflicts ------------------------------------------------------------------------------------


def brute_force(addresses: np.ndarray, mask: int, width: int) -> int:
    """Wavefronts: lanes in groups that can fill 128 bytes, each as long as its most wanted bank."""
    lanes = {4: 32, 8: 16, 16: 8}.get(width, 32)
    total = 0
    for first in range(0, 32, lanes):
        words = {
            int(a) // 4 + j
            for k, a in enumerate(addresses)
            if first <= k < first + lanes and mask >> k & 1
            for j in range(max(width // 4, 1))
        }
        banks = [sum(w % 32 == bank for w in words) for bank in range(32)]
        total += max(banks)
    return max(total, 1)


def test_wavefronts_against_brute_force(ptx: Any) -> None:
    """Conflict time of random and of regular accesses: the kernel measures its own loads, back to back with the first use."""
    rng = np.random.default_rng(5)
    cases = []
    for case in range(160):
        width = (4, 8, 16)[case % 3]
        style = case // 3 % 4
        stride = int(rng.integers(0, 40))
        slots = {
            0: rng.integers(0, 512, 32),
            1: LANES * stride,
            2: rng.permutation(32) * 2,
            3: rng.integers(0, 4, 32) * 32,
        }[style]
        mask = 0xFFFFFFFF if case % 2 else int(rng.integers(1, 2**32))
        cases.append((width, slots * width % 16384, mask))
    table = np.zeros((len(cases), 2, 32), np.uint32)
    for k, (_, addresses, mask) in enumerate(cases):
        table[k] = addresses, mask >> LANES & 1
    out = np.zeros(len(cases), np.uint32)
    loads = {
        4: "ld.shared.b32 %r10, [%r3];",
        8: "ld.shared.v2.b32 {%r10, %r11}, [%r3];",
        16: "ld.shared.v4.b32 {%r10, %r11, %r12, %r13}, [%r3];",
    }
    steps = "\n".join(
        f"ld.global.u32 %r3, [%d1 + {256 * k}]; ld.global.u32 %r4, [%d1 + {256 * k + 128}]; setp.ne.u32 %p1, %r4, 0; add.u32 %r3, %r3, %r5;"
        f"bar.warp.sync -1; mov.u32 %r6, %clock; @%p1 {loads[width]} xor.b32 %r9, %r9, %r10; mov.u32 %r7, %clock; sub.u32 %r7, %r7, %r6; st.global.u32 [%d2 + {4 * k}], %r7;"
        for k, (width, _, _) in enumerate(cases)
    )
    body = f"mov.u32 %r5, area; mov.u32 %r9, 0; mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %table, %d0; mov.u64 %d2, %out; {steps} st.global.u32 [%d2], %r9;"
    body = body.replace("st.global.u32 [%d2], %r9;", "setp.eq.u32 %p1, %r9, 12345; @%p1 trap;")
    result = ptx.run(body, "u64 table, u64 out", [table, out], shared=".shared .align 128 .b8 area[16512];")
    assert not result.findings
    for width in (4, 8, 16):
        rows = [k for k, case in enumerate(cases) if case[0] == width]
        waves = np.array([brute_force(cases[k][1], cases[k][2], width) for k in rows])
        least = np.array([int(out[k]) for k in rows])
        ideal = width // 4
        extra = 2 * np.maximum(waves - ideal, 0)  # an H200's LDS.32 takes 21 + 2 * ways cycles
        base = least - extra
        assert base.min() == base.max(), (width, list(zip(waves, least, strict=True)))


# ---- matrices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_and_stmatrix(ptx: Any, trans: str) -> None:
    """Random rows; fragment element i of lane l is element (l / 4, 2 (l % 4) + i) of the matrix (PTX ISA 9.7.14.5.15)."""
    rng = np.random.default_rng(7)
    memory = rng.integers(0, 2**16, (128, 8), dtype=np.uint16)
    rows = rng.permutation(128)[:32].astype(np.uint32)
    out = np.zeros((7, 32, 2), np.uint16)
    back = np.zeros((3, 128, 8), np.uint16)
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %rows, %d0; ld.global.u32 %r1, [%d1]; mov.u32 %r2, area;
        mad.lo.u32 %r3, %r1, 16, %r2; mad.lo.u32 %r4, %r0, 16, %r2; mul.wide.u32 %d3, %r0, 16; add.u64 %d2, %memory, %d3;
        .for i in (0, 4) {{ ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%d2 + 512*i]; st.shared.v4.u32 [%r4 + 512*i], {{%r20, %r21, %r22, %r23}}; }}
        ldmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 {{%r10}}, [%r3];
        ldmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 {{%r11, %r12}}, [%r3];
        ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r13, %r14, %r15, %r3}}, [%r3]; mov.u32 %r16, %r3; mad.lo.u32 %r3, %r1, 16, %r2;
        add.u64 %d4, %out, %d0; .for i in (0, 7) {{ st.global.u32 [%d4 + 128*i], %r{{10+i}}; }}
        .macro copy(k) {{ .for i in (0, 4) {{ ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%r4 + 512*i]; st.global.v4.u32 [%d5 + 2048*k + 512*i], {{%r20, %r21, %r22, %r23}}; }}
            mov.u32 %r20, 0; .for i in (0, 4) {{ st.shared.v4.u32 [%r4 + 512*i], {{%r20, %r20, %r20, %r20}}; }} }}
        add.u64 %d5, %back, %d3; mov.u32 %r20, 0; .for i in (0, 4) {{ st.shared.v4.u32 [%r4 + 512*i], {{%r20, %r20, %r20, %r20}}; }}
        stmatrix.sync.aligned.m8n8.x1{trans}.shared.b16 [%r3], {{%r10}}; copy(0);
        stmatrix.sync.aligned.m8n8.x2{trans}.shared.b16 [%r3], {{%r11, %r12}}; copy(1);
        stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r3], {{%r13, %r14, %r15, %r16}}; copy(2);"""
    result = ptx.run(
        body,
        "u64 memory, u64 rows, u64 out, u64 back",
        [memory, rows, out, back],
        shared=".shared .align 128 .b8 area[2048];",
    )
    assert not result.findings
    matrices = memory[rows].reshape(4, 8, 8)
    for k, matrix in enumerate((0, 0, 1, 0, 1, 2, 3)):
        block = matrices[matrix].T if trans else matrices[matrix]
        assert np.array_equal(out[k].reshape(8, 8), block), k
    for k, count in enumerate((1, 2, 4)):
        expected = np.zeros_like(memory)
        expected[rows[: 8 * count]] = memory[rows[: 8 * count]]
        assert np.array_equal(back[k], expected), count


# ---- faults --------------------------------------------------------------------------------------------

FAULTS = [
    ("ld.global.u32 %r1, [%d1 + 128];", "MEM103", "36 bytes past the end of out"),
    ("ld.global.u32 %r1, [%d1 + -128];", "MEM103", "before out"),
    ("st.global.u32 [%d1 + 128], %r0;", "MEM103", "past the end of out"),
    ("mov.u64 %d1, 0; ld.global.u32 %r1, [%d1];", "MEM103", "no array is near"),
    ("mov.u64 %d1, 0x7ffffffffffffff8; ld.global.v2.u32 {%r1, %r2}, [%d1];", "MEM103", "no array is near"),
    ("mov.u64 %d1, 0x7ffffffffffffff0; st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};", "MEM103", "no array is near"),
    ("mov.u64 %d1, -16; ld.u32 %r1, [%d1];", "MEM103", "no array is near"),
    ("ld.global.u32 %r1, [%d1 + 2];", "MEM104", "misaligned"),
    ("ld.global.v2.u32 {%r1, %r2}, [%d1];", "MEM104", "8 bytes"),
    ("st.global.u32 [%d2], %r0;", "MEM105", "read-only"),
    ("st.u32 [%d2], %r0;", "MEM105", "read-only"),
    ("ld.shared.u32 %r1, [%r5 + 1024];", "MEM101", "outside the CTA's shared memory"),
    ("st.shared.v4.u32 [%r5 + 0x1000000], {%r1, %r2, %r3, %r4};", "MEM101", "outside the CTA's shared memory"),
    ("mov.u32 %r5, -16; ld.shared.u32 %r1, [%r5];", "MEM101", "0xfffffff0"),
    ("ld.shared.u16 %h1, [%r5 + 1];", "MEM102", "misaligned"),
    ("st.shared.v4.u32 [%r5 + 8], {%r1, %r2, %r3, %r4};", "MEM102", "16 bytes"),
    ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r5 + 4];", "MEM102", "16 bytes"),
    ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5 + 2048], {%r1};", "MEM101", "16 bytes"),
    ("cvta.shared.u64 %d3, %d6; ld.u32 %r1, [%d3 + 4096];", "MEM101", "outside the CTA's shared memory"),
    ("mov.u64 %d3, mine; ld.local.u32 %r1, [%d3 + 16];", "MEM106", "4 bytes at 0x10"),
    ("mov.u64 %d3, mine; cvta.local.u64 %d3, %d3; st.u32 [%d3 + 2], %r0;", "MEM107", "misaligned"),
    ("mov.u64 %d3, mine; ld.local.v2.u32 {%r1, %r2}, [%d3 + 4];", "MEM107", "8 bytes at 0x4"),
]


@pytest.mark.parametrize(
    ("text", "rule", "words"), FAULTS, ids=[f"{rule}-{k}" for k, (_, rule, _) in enumerate(FAULTS)]
)
def test_faults(ptx: Any, text: str, rule: str, words: str) -> None:
    """Lanes 9 and up commit the fault, on a line of its own: lane 9 is reported, the exit code is 6."""
    constant = np.zeros(32, np.uint32)
    constant.flags.writeable = False
    whole = "matrix" in text
    body = f"""mov.u32 %r0, %laneid; mul.wide.u32 %d0, %r0, 4; add.u64 %d1, %out, %d0; add.u64 %d2, %constant, %d0; mov.u32 %r5, area; cvt.u64.u32 %d6, %r5;
        setp.lt.u32 %p1, %r0, {0 if whole else 9}; @%p1 bra DONE;
        {text}
        DONE:"""
    result = ptx.run(
        body, "u64 out, u64 constant", [np.zeros(32, np.uint32), constant], block=64,
        shared=".shared .align 128 .b8 area[64]; .local .align 16 .b8 mine[16];",
    )  # fmt: skip
    (finding,) = result.findings
    line = ptx.assemble(
        body, "u64 out, u64 constant", ".shared .align 128 .b8 area[64]; .local .align 16 .b8 mine[16];"
    ).program.source["<text>"].index(f"        {text}") + 1  # fmt: skip
    assert (finding.rule, finding.severity) == (rule, "fault") and result.exit_code() == 6
    assert finding.location.startswith(f"<text>:{line}:")
    assert words in finding.message and f"lane {0 if whole else 9}," in finding.message


def test_running_past_the_end_cannot_happen(ptx: Any) -> None:
    """A kernel without ret ends with an exit that the assembler adds."""
    import emu

    text = ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k() { .reg .b32 %r<2>; mov.u32 %r1, 1; }"
    result = emu.launch(emu.load(text=text), block=32)
    assert not result.findings and result.deadlock is None


def test_global_variables_keep_their_initial_values(ptx: Any) -> None:
    out = np.zeros(4, np.uint32)
    body = "mov.u64 %d1, table; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1]; st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};"
    ptx.run(body, "u64 out", [out], outside=".global .align 16 .u32 table[4] = {3, 1, 4, 1};")
    assert out.tolist() == [3, 1, 4, 1]


def test_parameters_are_read_at_computed_addresses(ptx: Any) -> None:
    """A struct by value whose element is chosen at run time, its address kept in 32 bits as compilers do."""
    text = """.version 8.6 .target sm_90a .address_size 64 .entry k(.param .u64 out, .param .align 4 .b8 table[128])
    { .reg .b32 %r<4>; .reg .b64 %d<3>; ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; shl.b32 %r1, %r1, 2;
      mov.b32 %r2, table; sub.s32 %r2, %r2, %r1; ld.param.s32 %r3, [%r2 + 124]; cvt.u64.u32 %d2, %r1; add.u64 %d1, %d1, %d2; st.global.u32 [%d1], %r3; }"""
    out, table = np.zeros(32, np.int32), np.arange(32, dtype=np.int32) - 7
    result = emu.launch(emu.load(text=text), block=32, args=[out, table.tobytes()])
    assert not result.findings and np.array_equal(out, table[::-1])
