"""Models whose backend is a command of the operator's: its options, its process, and what it says."""
