"""Detectors that tell when an answer strays from its course."""
