"""MLflow, W&B, trackio and Prometheus."""
