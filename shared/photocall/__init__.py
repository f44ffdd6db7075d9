"""What the rooms share: messages, records, questions, settings. Imports no torch, pillow or starlette."""

__version__ = "0.1.0"
