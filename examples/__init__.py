"""Small things to try Branchline with: tools, and round trips by two clients."""
