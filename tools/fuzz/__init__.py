"""Damaged programs and random values: whatever they do, the process lives and the result has an exit code."""
