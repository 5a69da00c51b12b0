"""The `branchline` command."""
