"""The domain: no I/O, no clock, no randomness, no async."""
