"""The kinds of drift, one module each; a module declares its class as `DETECTOR` and is found by that."""
