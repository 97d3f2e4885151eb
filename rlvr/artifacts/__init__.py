"""What a run leaves on disk: folder, metrics, checkpoints, evaluation."""
