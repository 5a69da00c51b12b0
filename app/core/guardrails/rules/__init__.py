"""The built-in rules, one module each; a module declares `RULE`, a class derived from `base.Rule`."""
