"""The GRPOTrainer subclass, its sampling, checkpoints, launch."""
