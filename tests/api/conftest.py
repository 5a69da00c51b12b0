"""Fixtures of the tests over HTTP."""

from tests.support.api import api, empty_database_url, shared_database_url

__all__ = ["api", "empty_database_url", "shared_database_url"]
