"""Image preparation on the CPU. Never imports torch."""
