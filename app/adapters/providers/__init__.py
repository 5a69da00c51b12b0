"""Model servers, one module per wire format; each declares `PROVIDER`."""
