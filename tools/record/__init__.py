"""Runs exported PTX on a real GPU and records outputs, times and counters."""
