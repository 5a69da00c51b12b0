"""What a model may be asked at once and per minute, and when it is left alone."""
