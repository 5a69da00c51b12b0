"""Rules that judge a model's answer while it is written and when it has ended."""
