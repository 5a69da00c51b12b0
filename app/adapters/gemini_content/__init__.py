"""The wire format of the Gemini API's generated content.

It lies beside `providers` because a module there is a provider and nothing else.
"""
