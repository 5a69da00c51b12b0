"""The wire format of Anthropic's Messages, and what servers make of it.

It lies beside `providers` because a module there is a provider and nothing else.
"""
