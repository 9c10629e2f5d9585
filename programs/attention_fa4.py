"""FlashAttention-4: attention with Tensor Memory, by `fa4.mptx`."""

from __future__ import annotations

from programs.attention import Attention, FlashAttention3, Tile
from programs.problem import PTX_TYPE, Define

STAGE_ROWS = 128  # query rows of a stage, keys of a block, rows of every box
RING_BYTES = 224 << 10  # that Q, O and the ring of K and V share
SMALL_TILES = 128  # query rows up to which one stage is enough


class FlashAttention4(FlashAttention3):
    """Attention by `fa4.mptx`: the grid, the schedule and the arguments are those of `fa3.mptx`."""

    kernel = "fa4"
    head_dims = (64, 128)
    group = STAGE_ROWS  # rows of a product

    def validate(self) -> None:
        """ValueError for what the kernel does not do; sets the derived sizes."""
        Attention.validate(self)
        self.cluster = 1
        self.stages = int(self.defines["TILES"])
        warpgroups = self.stages + int(self.defines["CORRECTION"]) + 1
        self.tile = Tile(STAGE_ROWS * self.stages, STAGE_ROWS, 128 * warpgroups, 0)

    def default_defines(self) -> dict[str, Define]:
        """Type, head dim, mask, and what suits them; the switches as the kernel has them.

        A causal tile has fewer polynomials, as in flash_attn/cute: its masked blocks leave MUFU some air.
        """
        return {
            "DTYPE": PTX_TYPE[self.dtype],
            "HEAD_DIM": self.head_dim,
            "CAUSAL": int(self.causal),
            "SCHEDULE": int(self.causal),
            "TILES": 1 if self.seqlen <= SMALL_TILES else 2,
            "CORRECTION": 1,
            "RESCALE_LIMIT": 8,
            "EMULATE": 16 if self.causal else 10,
            "EMULATE_FROM": 1,
            "SPLIT_P": 1,
            "KV_STAGES": 0,
        }

    @property
    def boxes(self) -> dict[str, int]:
        """Rows of the boxes of each tensor map."""
        return dict.fromkeys("qkvo", STAGE_ROWS)

    @property
    def shared_bytes(self) -> int:
        """SMEM_BYTES of the kernel: Q, O, the ring of K and V, the statistics of rows, barriers."""
        stage = 2 * STAGE_ROWS * self.head_dim
        around = 2 * self.stages * stage
        slots = int(self.defines["KV_STAGES"]) or min(32, (RING_BYTES - around) // stage)
        return around + slots * stage + 8 * self.tile.rows + 16 * slots + 160
