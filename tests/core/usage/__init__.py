"""What attempts used, and what that cost."""
