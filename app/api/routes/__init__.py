"""One module per resource; each declares `router`."""
