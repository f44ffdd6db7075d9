"""Batches: files of rows in, a file of results out, on this machine's disk."""
