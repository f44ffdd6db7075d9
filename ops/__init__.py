"""Commands for developers and operators; not part of the distribution."""
