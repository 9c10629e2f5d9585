"""Copies in flight of an SM, bulk copies and cp.async, and the tensor maps that they follow.

Fields are named as in `emu.state`.
"""

from __future__ import annotations

import numpy as np

from emu.state import i32, i64

# A bulk copy, by `state` (FREE: none): a load is served, then completes; a store is read out, then completes.
JOB = np.dtype(
    [
        ("state", i32),
        ("warp", i32),
        ("lane", i32),
        ("group", i32),
        ("cta", i32),
        ("pc", i32),
        ("coords", i32, 5),
        ("smem", i64),  # byte offset in the SM's shared memory
        ("target", i64),  # of a copy to another CTA: the offset there
        ("mbar", i64),  # cell, loads
        ("ranks", i64),  # other CTAs of the cluster that get the data of a load
        ("own", i32),  # whether this CTA gets them
        ("signal", i32),  # rank + 1 of the CTA of the pair whose mbarrier is told, 0: the one that gets the data
        ("code", i32),  # 0: bytes are copied, else the atomic operation + 1, bits 8.. the type (isa.ops.atomic)
        ("staged", i32),  # a load whose bytes are in `staging` from issue on: st.async, red.async
        ("bytes", i64),
        ("serve", i64),  # when the copy engine has taken it
        ("read", i64),  # when a store's source has been read, loads: same as finish
        ("finish", i64),  # when results and signals appear
        ("seq", i64),
        ("written", i32),  # a store: the chip has written its data
        ("staging_at", i64),
    ],
    align=True,
)

# A store: before, after its source has been read out; complete, but the chip has yet to write its data.
LOAD, STORE_READING, STORE_WRITING, STORE_DONE = 1, 2, 3, 4
SEND_READING, SENT = 5, 6  # a copy to another CTA: before, after its source has been read out

# A warp instruction of cp.async, or of cp.async.mbarrier.arrive (`arrive`: targets are mbarrier cells).
COPY = np.dtype(
    [
        ("finish", i64),  # when it is done, unless what is before it takes longer; PENDING until the chip says
        ("warp", i32),
        ("cta", i32),
        ("pc", i32),
        ("arrive", i32),
        ("size", i32),  # bytes a lane writes
        ("mask", i64),
        ("low", i64),  # least and
        ("high", i64),  # greatest group of its lanes
        ("target", i64, 32),  # host address
        ("source", i64, 32),  # host address
        ("count", i32, 32),  # bytes read
        ("group", i32, 32),
    ],
    align=True,
)

# A tensor map decoded from its 128 bytes (programs.tensormap).
TMAP = np.dtype(
    [
        ("base", i64),
        ("rank", i32),
        ("elem", i32),  # bytes
        ("swizzle", i32),  # bytes: 0 32 64 128
        ("fill_nan", i32),
        ("etype", i32),
        ("dims", i64, 5),
        ("strides", i64, 5),
        ("box", i32, 5),
        ("estride", i32, 5),
    ],
    align=True,
)
