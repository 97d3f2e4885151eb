"""Client of the reward server (rlvr/reward_server): rewards that run on other machines, over HTTP."""
