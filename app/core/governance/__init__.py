"""Who may do what: gates and permissions over one call."""
