"""The wire format of OpenAI's chat completions, and what servers make of it.

It lies beside `providers` because a module there is a provider and nothing else.
"""
