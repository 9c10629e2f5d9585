"""Compiled kernels with recorded inputs and outputs, run and checked."""
