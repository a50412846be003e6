"""Commands and shells; the policy that guards them."""
