"""Context providers."""
