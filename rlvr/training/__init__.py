"""Train with GRPOTrainer: sampling, advantages, checkpoints, interruption, launchers."""
