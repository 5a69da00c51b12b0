"""Find what several models agree on, and decide where they do not."""
