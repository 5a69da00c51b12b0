"""Behaviours that are expected of tool calls and of operate, each shown from outside."""
