"""Microbenchmarks that run on the emulator and, unchanged, on a GPU; the model against measurements."""
