"""Python code of the operator that is told of the callbacks of runs."""
