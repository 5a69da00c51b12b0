"""Use cases: they drive the machines of core and perform their effects through ports."""
