"""Speak with MCP servers; the official SDK is imported when the first of them is spoken with."""
