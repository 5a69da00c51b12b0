"""The state machine of one model stream."""
