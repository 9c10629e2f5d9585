"""The rules of findings in words: what each one means and what to do about it."""

from __future__ import annotations

import re

from emu.units import common, hazards

# Fault kind -> (rule, message, remedy); `address`, `aux`, `where` are filled in.
TEMPLATES = {
    common.F_TRAP: ("TRAP", "the program executed trap", ""),
    common.F_SHARED_RANGE: (
        "MEM101",
        "shared memory access of {aux} bytes at {address:#x} is outside the CTA's shared memory",
        "check the index, or give the launch more dynamic shared memory",
    ),
    common.F_SHARED_ALIGN: (
        "MEM102",
        "shared memory access of {aux} bytes at {address:#x} is misaligned",
        "align the address to the size of the access",
    ),
    common.F_GLOBAL_RANGE: (
        "MEM103",
        "global access of {aux} bytes at {address:#x} is outside every array ({where})",
        "check the index and the array's extent",
    ),
    common.F_GLOBAL_ALIGN: (
        "MEM104",
        "global access of {aux} bytes at {address:#x} is misaligned ({where})",
        "align the address to the size of the access",
    ),
    common.F_READ_ONLY: (
        "MEM105",
        "write of {aux} bytes to read-only memory at {address:#x} ({where})",
        "copy it to memory that may be written",
    ),
    common.F_LOCAL_RANGE: (
        "MEM106",
        "local access of {aux} bytes at {address:#x} is outside the thread's .local",
        "check the index and the size of the array",
    ),
    common.F_LOCAL_ALIGN: (
        "MEM107",
        "local access of {aux} bytes at {address:#x} is misaligned",
        "align the address to the size of the access",
    ),
    common.F_STACK: ("CTL101", "more than {aux} nested divergent paths", "make the inner branches uniform"),
    common.F_PC: ("CTL102", "execution ran past the end of the program", "end every path with ret or exit"),
    common.F_DIVERGED: (
        "WL103",
        "a collective instruction is executed by lanes {aux:#x} only",
        "let all lanes of its mask reach it together (barrier.sync without .aligned counts them from different places)",
    ),
    common.F_OUTSIDE: (
        "WL104",
        "a lane executes a collective instruction whose mask {aux:#x} leaves it out",
        "give the mask of the lanes that get there: -1 for a whole warp",
    ),
    common.F_MBAR_INVALID: (
        "MB101",
        "there is no initialised mbarrier at {address:#x}",
        "mbarrier.init it, and synchronise before others use it",
    ),
    common.F_MBAR_ALIGN: ("MB102", "mbarrier address {address:#x} is not a multiple of 8", ""),
    common.F_MBAR_COUNT: ("MB105", "mbarrier.init with a count of {aux}", "counts are 1 to 1048575"),
    common.F_MBAR_ARRIVALS: (
        "MB106",
        "{aux} arrivals on the mbarrier at {address:#x}{name} are more than its phase still expects (silicon traps)",
        "the init count must equal the arrivals of a phase",
    ),
    common.F_MBAR_TX: (
        "MB107",
        "the mbarrier at {address:#x}{name} would have a tx-count of {aux}, outside +-(2^20-1) (silicon traps)",
        "expect_tx exactly the bytes that copies bring in this phase",
    ),
    common.F_MBAR_NO_COMPLETE: (
        "MB108",
        "arrive.noComplete with {aux} arrivals completes the phase of the mbarrier at {address:#x}{name} (undefined)",
        "arrive without .noComplete where the arrival may be the last one",
    ),
    common.F_BAR_ID: ("BA101", "barrier {address} does not exist", "a CTA has barriers 0 to 15"),
    common.F_BAR_COUNT: (
        "BA102",
        "barrier {address} with {aux} threads",
        "the count is a multiple of 32, at most the CTA's threads",
    ),
    common.F_BAR_OVERFLOW: (
        "BA103",
        "barrier {address}: participants disagree on the thread count (here {aux})",
        "all participants of one barrier give the same count",
    ),
    common.F_WG_MISMATCH: (
        "WG103",
        "the four warps of the warpgroup do not execute the same wgmma with the same operands",
        "keep wgmma in warpgroup-uniform control flow with uniform descriptors",
    ),
    common.F_DESCRIPTOR: (
        "WG104",
        "wgmma descriptor {address:#018x} reaches outside shared memory",
        "check start address, strides and swizzle (`warpsmith explain wgmma`)",
    ),
    common.F_TMAP: ("TX101", "no valid tensor map at {address:#x}", "pass a TensorMap argument and cvta its address"),
    common.F_TMAP_RANK: ("TX102", "a {aux}-dimensional copy with a tensor map of rank {address}", ""),
    common.F_TMA_ALIGN: (
        "TX103",
        "bulk copy at shared address {address:#x}",
        "128-byte alignment with a swizzle, 16 bytes without; 1024 keeps the 128B pattern",
    ),
    common.F_TMA_MBAR: (
        "TX104",
        "there is no mbarrier at {address:#x} when a copy completes that signals it: {life}",
        "mbarrier.init goes before the copy, behind it a barrier of all CTAs that it may signal; mbarrier.inval goes after its last wait",
    ),
    common.F_BULK_SIZE: ("TX105", "bulk copy of {aux} bytes", "the size is a multiple of 16 bytes"),
    common.F_TMEM_COLUMNS: (
        "TM101",
        "Tensor Memory at {address:#010x}: column {aux} is not allocated by this CTA",
        "tcgen05.alloc it, and read the address that it wrote behind a barrier",
    ),
    common.F_TMEM_RANGE: (
        "TM102",
        "Tensor Memory at {address:#010x}: {aux} columns from there reach beyond the last one, or lanes beyond 127",
        "an address is lane << 16 | column",
    ),
    common.F_TMEM_LANES: (
        "TM105",
        "Tensor Memory at {address:#010x}: the warp may touch lanes {aux} to {aux}+31 only",
        "warp w of a CTA has the lanes from 32 * (w % 4) on: add that << 16 to the address",
    ),
    common.F_TMEM_SIZE: (
        "TM107",
        "{aux} columns of Tensor Memory",
        "a power of two from 32 to 512",
    ),
    common.F_TMEM_PERMIT: (
        "TM108",
        "tcgen05.alloc behind tcgen05.relinquish_alloc_permit of the same CTA",
        "allocate first",
    ),
    common.F_TMEM_FREE: (
        "TM109",
        "tcgen05.dealloc of {aux} columns at {address:#010x}, which no tcgen05.alloc of this CTA has given",
        "free what was allocated, once, with the same number of columns",
    ),
    common.F_TMEM_LEAK: (
        "TM110",
        "the CTA ends with {aux} columns of Tensor Memory allocated",
        "tcgen05.dealloc them before the last warp exits",
    ),
    common.F_TMEM_ADDRESS: (
        "TM112",
        "the lanes of the warp give different Tensor Memory addresses ({address:#010x} in lane 0)",
        "the address is the same in all lanes; each lane's own place follows from the shape",
    ),
    common.F_TC_IDESC: ("TC101", "instruction descriptor {address:#010x}: {idesc}", "`warpsmith explain idesc`"),
    common.F_TC_MATRIX: ("TC102", "matrix descriptor {address:#018x}: {matrix}", "`warpsmith explain descriptor`"),
    common.F_TC_RANGE: (
        "TC103",
        "matrix descriptor {address:#018x} reaches outside shared memory",
        "check start address, strides and swizzle (`warpsmith explain descriptor`)",
    ),
    common.F_TC_LANE: (
        "TC104",
        "Tensor Memory at {address:#010x}: a product's D and A begin in lane 0, or with M = 64 without .ws both in lane 16",
        "an address is lane << 16 | column",
    ),
    common.F_TMEM_ALIGN: (
        "TM111",
        "Tensor Memory at {address:#010x}: tcgen05.shift begins in a lane that is a multiple of 32",
        "an address is lane << 16 | column",
    ),
    common.F_TMEM_BUSY: (
        "TM203",
        "tcgen05.dealloc of columns at {address:#010x} that a tcgen05.ld or .st of warp {aux} still uses",
        "tcgen05.wait::ld and ::st in every warp, then a barrier, then dealloc",
    ),
    common.F_RANK: (
        "CL103",
        "the shared address {address:#x} names CTA {aux} of the cluster, which does not exist, or its mbarrier lies in another CTA",
        "ranks are 0 to %cluster_nctarank - 1; the data and the mbarrier of a copy lie in one CTA",
    ),
    common.F_PAIR: (
        "CL107",
        "tcgen05 with cta_group::2 in a cluster of {aux} CTAs, which has no pairs",
        "launch clusters of an even number of CTAs (.reqnctapercluster, --cluster); a pair is two ranks that differ in the last bit",
    ),
    common.F_PAIR_COLUMNS: (
        "TM113",
        "tcgen05.alloc with cta_group::2: {address} columns here, {aux} in the other CTA of the pair",
        "both CTAs of a pair allocate as many, in the same order",
    ),
    common.F_COPY_RANKS: (
        "CL102",
        "the CTA mask {address:#x} of a multicast names CTAs beyond the {aux} of the cluster",
        "bit r of the mask is the CTA of rank r",
    ),
    common.F_PEER_GONE: (
        "CL104",
        "remote access to shared memory {address:#x} of CTA {aux}, which has exited",
        "let no CTA exit before its cluster is done with its memory: barrier.cluster at the end",
    ),
    common.F_CLUSTER_TWICE: (
        "CL105",
        "a second barrier.cluster.arrive without a wait in between (undefined)",
        "each thread arrives, then waits",
    ),
    common.F_SETMAXNREG: (
        "SM103",
        "setmaxnreg to {address} registers from {aux}: inc must not lower, dec must not raise",
        "",
    ),
}
# The parts that are filled in, in the words of `warpsmith explain`.
WORDS = {"{name}": "", "{where}": "the nearest array", "{aux:#x}": "<mask>", "{aux}": "<n>", "{address}": "<n>",
         "{life}": "it is not initialised yet, or no longer", "{idesc}": "a field does not exist or does not go with the kind", "{matrix}": "a field does not exist"}  # fmt: skip


def in_words(message: str) -> str:
    """The message of a fault with words for what a run fills in."""
    for part, word in WORDS.items():
        message = message.replace(part, word)
    return re.sub(r"\{address:[^}]*\}", "<address>", message)


# As `TEMPLATES`, for readers.
FAULTS = {kind: (rule, in_words(message), remedy) for kind, (rule, message, remedy) in TEMPLATES.items()}

# Hazard -> (rule, what is wrong in general, remedy).
HAZARDS = {
    hazards.H_OWN: (
        "CA101",
        "shared memory is read that an earlier cp.async of the same warp may still write",
        "cp.async.wait_group N leaves the N newest groups out: N is the number of groups that are committed behind the one that is read",
    ),
    hazards.H_OTHER: (
        "CA102",
        "shared memory is read that a cp.async of another warp may still write, which has not waited for it",
        "the copying warp waits (cp.async.wait_group), and both come to a barrier, before the read; or a barrier before the copy, if older data are meant",
    ),
    hazards.H_SIGNAL: (
        "CA103",
        "shared memory is read that another warp has copied and waited for, without a barrier in between",
        "a wait is for its own thread's copies only: bar.sync after it",
    ),
    hazards.H_SIZE: (
        "CA104",
        "a cp.async has a src-size above its cp-size (undefined; here all bytes are copied)",
        "src-size is the number of bytes to read, at most cp-size; the rest become zeros",
    ),
    hazards.H_PRODUCT: (
        "TM204",
        "columns of Tensor Memory are loaded or stored that a tcgen05.mma before still writes",
        "tcgen05.commit behind the product and a wait for its mbarrier, then tcgen05.fence::after_thread_sync, come before the access",
    ),
}  # fmt: skip

# Rules of findings that are no fault of an instruction, and words of the reports: meaning and remedy.
NOTES = {
    "TRAP": (
        "fault",
        "the program executed trap, as programs do where they detect a mistake of their own",
        "see the line that it names",
    ),
    "LIMIT": (
        "limit",
        "the run stopped at its limit of cycles while warps were still running",
        "raise the limit, or look for a loop that does not end",
    ),
    "ASM": (
        "info",
        "a warning of the assembler, such as spills or an ignored setmaxnreg",
        "`warpsmith asm FILE` shows it too",
    ),
    **{rule: ("error", meaning, remedy) for rule, meaning, remedy in HAZARDS.values()},
    "deadlock": (
        "result",
        "no warp can issue and no copy or wgmma is in flight; the report says what each warp waits for (exit code 3)",
        "find the missing arrival, bytes or warp that it names",
    ),
    "livelock": (
        "result",
        "all warps repeat themselves: they poll what nobody can change any more (exit code 3)",
        "find the missing arrival or store that the report names",
    ),
    "MB201": (
        "deadlock",
        "warps wait for each other in a circle; each would deliver what the next one waits for",
        "one of the waits must be able to pass first: look at counts, parities and the order of waits and arrivals",
    ),
    "MB204": (
        "deadlock",
        "a phase of an mbarrier needs arrivals that no warp will make",
        "the count of mbarrier.init must equal the arrivals of a phase",
    ),
    "MB205": (
        "deadlock",
        "the phase that a warp waits for ended long ago: the barrier is two or more phases ahead, with the same parity",
        "nobody may complete the next phase before every waiter has seen this one",
    ),
    "MB207": (
        "deadlock",
        "a warp asks for the same parity twice in a row",
        "flip the phase bit after each wait (in a ring: whenever the slot wraps)",
    ),
    "TX101": (
        "deadlock",
        "a phase of an mbarrier expects bytes that no copy brings",
        "expect_tx must be the sum of the full boxes of the phase's copies",
    ),
    "TX102": (
        "deadlock",
        "copies brought more bytes to an mbarrier than the phase expects",
        "expect_tx must be the sum of the full boxes of the phase's copies",
    ),
    "NB101": (
        "deadlock",
        "a named barrier waits for threads that do not come",
        "the count is that of all threads that sync or arrive, in whole warps",
    ),
    "NB102": (
        "deadlock",
        "a warp came to a named barrier twice in one generation, which another warp's arrival was to complete",
        "each warp arrives or syncs once for every opening of the barrier",
    ),
    "RG101": (
        "deadlock",
        "setmaxnreg.inc waits for registers that no warp gives back",
        "after all dec and inc, registers x warps must fit what the CTA had at launch",
    ),
    "TM106": (
        "deadlock",
        "tcgen05.alloc waits for columns of Tensor Memory that no warp frees",
        "tcgen05.dealloc before the wait, allocate less, or let fewer CTAs share an SM",
    ),
    "TM114": (
        "deadlock",
        "a tcgen05.alloc with cta_group::2 waits for the other CTA of its pair, which never comes to its own",
        "a warp of each of both CTAs allocates, as many columns and in the same order",
    ),
    "CL101": (
        "deadlock",
        "the barrier of a cluster waits for threads that do not come",
        "every thread of the cluster that has not exited arrives (barrier.cluster.arrive)",
    ),
    "CL106": (
        "deadlock",
        "a warp waits for the barrier of its cluster without having come to it",
        "barrier.cluster.arrive goes before barrier.cluster.wait",
    ),
    "WG105": (
        "deadlock",
        "a warpgroup's wgmma waits for a warp of the warpgroup that does not come",
        "all four warps execute the same wgmma instructions",
    ),
    "chaos": (
        "option",
        "another timing that PTX allows: copies and wgmma early or late, waiters late, try_wait false, warps later",
        "`warpsmith run KERNEL --chaos SEED` compares with the plain run and names what changes the results",
    ),
    "CHAOS": (
        "error",
        "results differ under another timing that PTX allows (`run --chaos`)",
        "something is read before it is known to be there; the report names the perturbation that shows it",
    ),
    "occupancy": (
        "result",
        "CTAs that reside on an SM together, limited by warps, threads, registers, shared memory and CTA slots",
        "",
    ),
}


def rules() -> list[tuple[str, str, str, str]]:
    """Every rule of the reports as (rule, kind, meaning, remedy), by rule."""
    noted = {word for word, (kind, _, _) in NOTES.items() if kind == "fault"}
    found = [(rule, "fault", message, remedy) for rule, message, remedy in FAULTS.values() if rule not in noted]
    found += [(word, *text) for word, text in NOTES.items() if word.isupper()]
    return sorted(found, key=lambda row: row[:2])


def note(word: str) -> str:
    """`explain` of a finding's rule or a word of the reports; empty for any other word."""
    if word not in NOTES:
        return ""
    kind, meaning, remedy = NOTES[word]
    return f"{kind} {word}: {meaning}{f'; {remedy}' if remedy else ''}\n"
