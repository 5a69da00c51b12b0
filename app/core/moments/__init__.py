"""What a run was at a moment, told by its log alone."""
