"""tcgen05.mma and commit: the instruction reaches the tensor core whose numerics are tested on their own; order."""

from __future__ import annotations

import numpy as np
import pytest

from emu.units.tcgen05_math import D_F16, D_S32
from isa.descriptors import ELEMENTS, KINDS, matrix_descriptor
from tests.emu.units.tcgen05 import COMMIT, address_of_tile, product, run
from tests.emu.units.tcgen05_reference import Case, Machine

CASES = [
    (Case(n=128), "f16"),
    (Case("bf16", "bf16", n=256, tensor=1, accumulate=0), "f16"),
    (Case(n=72, trans_a=1, trans_b=1, d_type=D_F16, negate=1, desc_a=matrix_descriptor(0, lbo=8192, sbo=1024)), "f16"),
    (Case(m=64, n=24, first_lane=16, tensor=1, scale_d=3), "f16"),
    (Case(mask=(0xF, 0, 0x80000000, 0)), "f16"),
    (Case("tf32", "tf32", desc_a=matrix_descriptor(0, lbo=4096, sbo=512, swizzle="128B with 32B atoms"), trans_a=1), "tf32"),
    (Case("e2m1", "e5m2", n=40), "f8f6f4"),
    (Case("e3m2", "e2m3", m=64, n=128, ws=1), "f8f6f4"),
    (Case("s8", "u8", d_type=D_S32, saturate=1), "i8"),
    (Case(m=32, n=256, ws=1, tensor=1), "f16"),
    (Case("e4m3", "e2m1", blocks=1, sfa_id=3, sfb_id=1), "mxf8f6f4"),
    (Case("packed", "packed", n=96, blocks=2, sfa_id=2, tensor=1), "mxf4"),
    (Case("packed", "packed", blocks=4, ue8m0=0, accumulate=0), "mxf4nvf4"),
]  # fmt: skip


@pytest.mark.parametrize("case, kind", CASES)
def test_an_instruction_reaches_the_tensor_core(case, kind):
    """What the program finds in Tensor Memory is what the numerics, tested on their own, make of the same operands."""
    machine = Machine(case)
    body = f"{product(case, kind, address_of_tile())}\n{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(body, machine.smem, machine.before)
    assert not result.findings and machine.run() == 0
    np.testing.assert_array_equal(out, machine.tmem)


def test_kinds_and_elements_are_numbered_alike():
    assert KINDS[0] == "f16" and ELEMENTS.index("packed") == 10


# ---- order ---------------------------------------------------------------------------------------------


def test_results_appear_at_completion():
    """A load that does not wait for the commit sees old data; products on the same D follow each other."""
    case = Case(n=64)
    machine, shift = Machine(case), address_of_tile()
    early = f"""{product(Case(n=256), "f16", shift)} {product(case, "f16", shift)}
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r80}}, [%r7 + {case.D}]; tcgen05.wait::ld.sync.aligned;
        {COMMIT} [bar]; mbarrier.wait [bar], 0;
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r7 + 500], {{%r80}}; tcgen05.wait::st.sync.aligned;"""
    out, result = run(early, machine.smem, machine.before)
    (finding,) = result.findings
    assert finding.rule == "TM204" and "`tcgen05.ld" in finding.message and "is under way" in finding.message
    np.testing.assert_array_equal(out[500], machine.before[case.D])
    twice = "\n".join([product(case, "f16", shift)] * 2) + f"{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(twice, machine.smem, machine.before)
    machine.run()
    machine.run()
    np.testing.assert_array_equal(out, machine.tmem)


def test_operands_are_read_until_completion():
    """Shared memory that is overwritten early spoils the product."""
    case = Case(n=64, accumulate=0)
    machine, shift = Machine(case), address_of_tile()
    spoil = "mov.u32 %r70, tile; mad.lo.u32 %r70, %r1, 128, %r70; @!%p1 st.shared.u32 [%r70], 0; bar.sync 0;"
    body = f"{product(case, 'f16', shift)} {spoil} {COMMIT} [bar]; mbarrier.wait [bar], 0;"
    out, result = run(body, machine.smem, machine.before)
    machine.run()
    assert not result.findings and (out != machine.tmem).any()


def test_every_active_thread_issues_its_own():
    """Four threads of a warp: D = D + 4 A B; one commit of each of two threads."""
    case = Case(n=32)
    machine, shift = Machine(case), address_of_tile()
    body = f"""setp.lt.u32 %p5, %r1, 4; setp.lt.u32 %p6, %r1, 2; @%p2 mbarrier.init.shared.b64 [bar + 16], 2; bar.sync 0;
        {product(case, "f16", shift, "@%p5 ")}
        @%p6 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [bar + 16]; mbarrier.wait [bar + 16], 0;"""
    out, result = run(body, machine.smem, machine.before)
    for _ in range(4):
        machine.run()
    assert not result.findings
    np.testing.assert_array_equal(out, machine.tmem)


def test_a_commit_with_nothing_before_it_arrives():
    machine = Machine(Case())
    out, result = run(f"{COMMIT} [bar]; mbarrier.wait [bar], 0;", machine.smem, machine.before)
    assert not result.findings and np.array_equal(out, machine.before)


def test_chaos_keeps_the_order():
    """Other timing that PTX allows: a program that waits as it should has the same results."""
    case = Case(n=64)
    machine, shift = Machine(case), address_of_tile()
    body = "\n".join([product(case, "f16", shift)] * 3) + f"{COMMIT} [bar]; mbarrier.wait [bar], 0;"
    plain, _ = run(body, machine.smem, machine.before)
    for seed in range(1, 4):
        out, result = run(body, machine.smem, machine.before, chaos=seed)
        assert not result.findings
        np.testing.assert_array_equal(out, plain)
