"""Measure the service as a whole and its hottest parts; `bin/bench` prints one table."""
