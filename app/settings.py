"""Environment and branchline.toml, parsed once."""
