"""Postgres: the only SQL of the project."""
