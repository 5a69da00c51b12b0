"""ASGI entry."""
