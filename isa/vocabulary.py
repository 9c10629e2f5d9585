"""Words of PTX that tell an unimplemented instruction from a misspelt one."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    """The words of a list as prose."""
    return frozenset(text.split())


# First components of the opcodes in the PTX ISA 9.x, chapter 9.7.
OPCODES = _words(
    """
    abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx call clmad
    clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma
    fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier
    membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red
    redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix
    sub subc suld suq sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd
    vadd2 vadd4 vavrg2 vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4
    wgmma wmma xor
    """
)

# What to write instead of instructions that are not implemented.
_OWN = "let each thread or CTA write an element of its own, and sum them with shfl.sync or in a second kernel"
_LOAD = "use ld.global or bulk copies with a tensor map (cp.async.bulk.tensor)"
INSTEAD = {"multimem": _OWN} | dict.fromkeys(("tex", "tld4", "suld", "sust", "sured", "suq", "txq"), _LOAD)


def instead(opcode: str) -> str:
    """The remedy for an instruction of PTX that is not implemented."""
    known = "docs/language.md lists what is implemented and what is not"
    return f"{INSTEAD[opcode]}; {known}" if opcode in INSTEAD else known


def unimplemented(word: str) -> str:
    """`explain` of an instruction that is recognised but not implemented; empty for any other word."""
    from isa import registry  # what is implemented is declared there

    opcode = word.split(".")[0]
    registry.load()
    if opcode not in OPCODES or opcode in registry.FORMS:
        return ""
    return f"instruction {opcode}: recognised, but not implemented (exit code 4); {instead(opcode)}\n"


# Instructions of more than one component whose shorter prefix is another instruction.
COMPOUNDS = _words(
    """
    barrier.cluster cp.async cp.async.bulk cp.async.bulk.commit_group cp.async.bulk.prefetch
    cp.async.bulk.prefetch.tensor cp.async.bulk.tensor cp.async.bulk.wait_group cp.async.commit_group cp.async.mbarrier
    cp.async.wait_all cp.async.wait_group cp.reduce.async.bulk cp.reduce.async.bulk.tensor fence.mbarrier_init
    fence.proxy mbarrier.arrive mbarrier.arrive_drop mbarrier.complete_tx mbarrier.expect_tx mbarrier.init
    mbarrier.inval mbarrier.pending_count mbarrier.test_wait mbarrier.try_wait mma.sp mma.sync prefetch.tensormap
    tcgen05.alloc tcgen05.commit tcgen05.cp tcgen05.dealloc tcgen05.fence tcgen05.ld tcgen05.mma
    tcgen05.relinquish_alloc_permit tcgen05.shift tcgen05.st tcgen05.wait wgmma.commit_group wgmma.fence
    wgmma.mma_async wgmma.mma_async.sp wgmma.wait_group
    """
)


def compound(opcode: str) -> str:
    """The instruction that an opcode or syntax line belongs to: its longest known prefix."""
    words = opcode.split("{")[0].split(" ")[0].split(".")
    prefixes = (".".join(words[:n]) for n in range(len(words), 1, -1))
    return next((p for p in prefixes if p in COMPOUNDS), words[0])


# Qualifiers of the same chapter (types included) that an implemented family may not know yet.
_QUALIFIERS = _words(
    """
    1d 2d 3d 4d 5d L1 L2 a abs acq_rel acquire add aligned all alloc and and_popc any approx arrive ashift ashr async
    async_generic b b1 b1024 b128 b16 b32 b4x16_p64 b64 b6x16_p32 b8 b8x16 ballot bf16 bf16x2 bfly block block16 block32
    block_scale box_dim bulk bulk_group c ca cas cc cg clamp cluster cmp col collector commit commit_group complete_tx
    const cp cp_fenceproxy cp_mask cs cta cv d dealloc dec down e2m1 e2m1x2 e2m1x4 e2m3 e2m3x2 e2m3x4 e3m2 e3m2x2 e3m2x4
    e4m3 e4m3x2 e4m3x4 e5m2 e5m2x2 e5m2x4 element_stride elemtype end entry eq equ evict_first evict_last exch expect_tx
    f16 f16x2 f32 f32x2 f64 f6x2 fence fill_mode fractional ftz full func gather4 ge generic geom geu global
    global_address global_dim global_stride gpu gt gtu hi hs i2 idx im2col im2col_no_offs inc init interleave_layout
    inval is_canceled l ld le leu lo load local ls lt ltu m16n16 m16n16k16 m16n16k8 m16n8 m16n8k16 m16n8k256 m16n8k32
    m16n8k64 m16n8k8 m32n8k16 m8n16 m8n32k16 m8n8 m8n8k128 m8n8k32 m8n8k4 max mbarrier mbarrier_init min minctas mma
    mma_async mmio mxf4 mxf4nvf4 nan nc ne neu noComplete no_allocate noftz noinc num once oob op or param parity
    pending_count popc prefetch proxy query_cancel rank rcp read red reduce relaxed release relinquish_alloc_permit relu
    replace rm rmi rn rna rni row rp rpi rs rz rzi s16 s16x2 s2 s32 s4 s64 s8 sat satfinite scatter4 shared shift
    shiftamt sp sparse st start store swizzle_atomicity swizzle_mode sync sync_restrict sys tensor tensormap test_wait
    texmode tf32 tile to trans transa transb try_cancel try_wait u16 u16x2 u32 u4 u64 u8 ue8m0 ue8m0x2 uni unified up v
    v2 v4 v8 volatile wait wait_group warp weak wide wrap ws xor xor_popc xorsign
    """
)
# Families of them: repetitions, shapes, and words with a name space.
_SPACES = (
    "L1|L2|async|block_scale|collector|cta_group|get_first_ctaid|im2col|kind|level|mbarrier|multicast|pack|param|scale_vec"
    "|shared|sp|sync_restrict|tensormap|tile|unpack|wait"
)
_FAMILIES = re.compile(rf"x\d+|\d+x\d+b(x2)?|({_SPACES})::[\w:]+")


def is_qualifier(word: str) -> bool:
    """Whether PTX has this qualifier, somewhere."""
    return word in _QUALIFIERS or _FAMILIES.fullmatch(word) is not None
