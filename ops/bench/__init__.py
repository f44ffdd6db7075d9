"""Benchmarks: what the figures in the documents come from."""
