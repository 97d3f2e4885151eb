"""What can be known to be wrong before a weight is loaded: batch arithmetic, columns, prompts, combinations.

What is checked here is what would otherwise fail after the first generation, or not fail at all: TRL finishes
"successfully" with 0 steps when the data is smaller than one batch. The whole of it is in check.py, which is not
imported here: whoever wants a part of it need not wait for the rest.
"""

from rlvr.config.batch_plan import BatchPlan, reward_budget
from rlvr.preflight.components import RunComponents, load_parts
from rlvr.preflight.recipe_checks import Findings, check_recipe
from rlvr.preflight.reward_trial import try_rewards

__all__ = ["Findings", "RunComponents", "BatchPlan", "check_recipe", "load_parts", "reward_budget", "try_rewards"]
