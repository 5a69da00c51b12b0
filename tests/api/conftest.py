"""Fixtures of the tests over HTTP."""

from tests.support.api import api

__all__ = ["api"]
