"""A Postgres and a small language model that run without any set-up."""
