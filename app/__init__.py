"""Branchline: durable runs of language-model work over HTTP."""

import gc

__version__ = "0.1.0"

# What a start makes stays. To look at all of it each time that a few hundred more objects are there takes a
# tenth of the start; `launch` says what holds from then on.
gc.set_threshold(100_000, 20, 100)
