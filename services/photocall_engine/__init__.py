"""The inference engine: the only room with torch."""
