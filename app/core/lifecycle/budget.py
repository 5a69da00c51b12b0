"""The model calls that a run may still make, shared by all its streams."""

from __future__ import annotations


class Budget:
    """Openings left to a run.

    A call is taken when it is decided on, not when it is made: a retry that was announced can still be made
    after its pause, whatever other streams of the run do meanwhile.
    """

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left
        """Never below 0."""

    def take(self) -> None:
        """Use one. Who asks has seen that there is one."""
        if self.left < 1:
            raise ValueError("no model call is left")
        self.left -= 1
