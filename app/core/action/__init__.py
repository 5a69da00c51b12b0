"""The transaction of one tool call."""
