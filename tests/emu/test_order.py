"""Which sources are scheduled, and that scheduled programs compute the same bits."""

import functools
from pathlib import Path

import numpy as np
import pytest

import emu
import emu.solve
import programs
from emu.machine import load_machine
from emu.order import scheduling

BODY = """.version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 a)\n{
.reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd0, [a];
ld.global.u32 %r0, [%rd0]; add.u32 %r0, %r0, 1; ld.global.u32 %r1, [%rd0+4]; add.u32 %r1, %r1, 2;
add.u32 %r0, %r0, %r1; st.global.u32 [%rd0], %r0; ret;\n}"""


def test_ptx_files_are_scheduled_and_all_else_is_not(tmp_path):
    assert scheduling(None, None) is scheduling(None, "a.mptx") is scheduling("source", "a.ptx") is None
    assert scheduling(None, "a.ptx") is not None and scheduling("scheduled", None) is not None
    with pytest.raises(ValueError, match="source, scheduled"):
        emu.load(text=BODY, order="fast")
    plain = ["LDG", "IADD3", "LDG", "IADD3", "IADD3", "STG", "EXIT"]
    early = ["LDG", "LDG", "IADD3", "IADD3", "IADD3", "STG", "EXIT"]
    for suffix, order, names in ((".mptx", None, plain), (".ptx", None, early), (".ptx", "source", plain)):
        path = tmp_path / f"k{suffix}"
        path.write_text(BODY)
        assert emu.load(path, order=order).program.micro_names == names
    assert emu.load(text=BODY).program.micro_names == plain


@pytest.mark.parametrize(
    ("name", "defines", "options"),
    [
        ("fa3", {"KV_TILE": 48}, {"seqlen": 130, "seqlen_k": 100, "heads": 2}),
        ("fa3", {"KV_TILE": 48, "SPECIALIZE": 0, "OVERLAP": 0}, {"seqlen": 130, "seqlen_k": 100, "heads": 1}),
        ("gemm", {"TILE_N": 64, "STAGES": 2}, {"m": 140, "n": 72, "k": 136}),
        ("softmax", {"VECTORS": 2}, {"rows": 9, "cols": 1412}),
    ],
    ids=str,
)
def test_scheduled_programs_compute_the_same_bits(monkeypatch, name, defines, options):
    outputs = []
    for order in ("source", "scheduled"):
        monkeypatch.setattr(emu.solve, "load", functools.partial(emu.load, order=order))
        problem = programs.find(name).from_options(defines, **options)
        result = emu.solve.solve(problem, load_machine("h200", ("chip.sms=2",)), max_cycles=1_000_000)
        assert result.deadlock is None and result.numerics is not None and result.numerics.passed
        outputs.append({key: np.array(array) for key, array in result.outputs.items()})
    assert all(outputs[0][key].tobytes() == outputs[1][key].tobytes() for key in outputs[0])


def test_ldmatrix_stands_among_the_products():
    """Shared memory feeds four sub-partitions in turn, so ptxas puts no more than six of these 16 in front."""
    path = Path(__file__).parents[1] / "golden" / "composites" / "k_fa2_4.ptx"
    names = emu.load(path).program.micro_names
    first = next(k for k, name in enumerate(names) if name.startswith("HMMA"))
    body = [name[:4] for name in names[first - 16 :] if name[:4] in ("HMMA", "LDSM")]
    assert body.index("HMMA") <= 6 and "LDSM" in body[body.index("HMMA") + 20 :]
