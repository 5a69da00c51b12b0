"""Branchline: durable runs of language-model work over HTTP."""

__version__ = "0.1.0"
