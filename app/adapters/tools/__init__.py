"""Kinds of tool, one module each."""
