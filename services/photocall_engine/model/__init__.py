"""Gemma 4 on plain torch: configuration, weights, text decoder, vision tower. Knows nothing of requests."""
