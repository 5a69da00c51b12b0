"""What asking models uses, and what that costs."""
