"""Histories as lines of JSON, to be carried from one installation to another."""
