"""The wire of Bedrock's ConverseStream."""
