"""Stage II: a policy trained with GRPO and a Teacher that re-reads failures with hindsight (``pivot train rl``)."""
