"""Kinds of hook, one module each."""
