"""Composition root: the only module that knows everyone."""
