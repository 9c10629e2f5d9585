"""The emulator beside an H200: whole programs, composite kernels, units, stalls and ablations."""
