"""What goes on in Tensor Memory: commands of tcgen05, and loads and stores by warps.

Fields are named as in `emu.state`.
"""

from __future__ import annotations

import numpy as np

from emu.state import i32, i64

# A command of tcgen05 in the tensor core's queue, by sequence number modulo TC_RING: a product, a copy, ..., a commit.
# `start` to `finish` it reads its operands, at `finish` its result or signal appears.
TC_JOB = np.dtype(
    [
        ("what", i32),  # TC_*
        ("warp", i32),
        ("lane", i32),
        ("cta", i32),
        ("pc", i32),
        ("start", i64),
        ("leave", i64),  # when the next one may start
        ("finish", i64),
        ("port", i64),  # shared-memory port cycles between `start` and `leave`
        ("mbar", i64),  # a commit's cell
        ("pair", i32),  # cta_group::2: it is of both CTAs of a pair
        # a product, decoded (isa.descriptors); a copy has its own use of `d`, `a` and `word`
        ("word", i64),
        ("d", i64),
        ("a", i64),
        ("b", i64),
        ("sfa", i64),
        ("sfb", i64),
        ("m", i32),
        ("n", i32),
        ("kind_a", i32),
        ("kind_b", i32),
        ("d_type", i32),
        ("a_tensor", i32),
        ("ws", i32),
        ("trans_a", i32),
        ("trans_b", i32),
        ("negate", i32),
        ("saturate", i32),
        ("accumulate", i32),
        ("scale_d", i32),
        ("blocks", i32),
        ("ue8m0", i32),
        ("sfa_id", i32),
        ("sfb_id", i32),
        ("mask", i64, 4),
        ("mask_odd", i64, 4),  # of the second CTA of a pair
    ],
    align=True,
)
TC_MMA, TC_COMMIT, TC_COPY, TC_SHIFT = range(4)
# A warp's load or store of Tensor Memory.
TMOVE = np.dtype(
    [
        ("finish", i64),
        ("order", i64),  # of the warp's launch
        ("word", i64),
        ("taddr", i64),
        ("mask", i64),
        ("warp", i32),
        ("cta", i32),
        ("list", i32),  # the registers of a load
        ("count", i32),
        ("result", i32),  # of a reduction
        ("pc", i32),
    ],
    align=True,
)
TMEM_STAGE = 128 * 128  # bytes of the registers of a store
