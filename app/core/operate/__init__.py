"""What an operate request means: parameters, schemas, validation."""
