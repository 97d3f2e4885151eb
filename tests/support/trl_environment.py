"""An environment of the shape that TRL's documentation shows: it draws its own task, and scores itself."""

import random


class Adder:
    def reset(self, **kwargs) -> str | None:  # type: ignore[no-untyped-def]
        self.total = 0
        self.wanted = random.randint(1, 6)
        return f" Reach {self.wanted}."

    def get_reward(self) -> float:
        return float(self.total == self.wanted)

    async def increase(self, step: int) -> int:
        """
        Increase the total.

        Args:
            step: How much to add.

        Returns:
            The new total.
        """
        self.total += step
        return self.total
