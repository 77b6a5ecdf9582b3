"""Errors that are answers: what went wrong and what to do."""


class Unable(Exception):
    """Nothing can be measured; the text says why."""
