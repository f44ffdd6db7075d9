"""Fuzzing: one target for each parser of what strangers send, with seeds; docs/fuzzing.md says how it is done."""
