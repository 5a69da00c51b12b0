"""What of a structured answer can be shown while it is still being written."""
