"""Bodies that clients send and answers that they get, one module per resource."""
