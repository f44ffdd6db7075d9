"""The crash matrix: real processes under load, killed at every point that matters, and an audit of what is left."""
