"""Rewards and judgements on a Ray cluster.

Ray ends a process whose cluster is gone, and a training process must outlive that. So `driver_client` sends tasks to a
process of its own (`driver`), which joins a cluster or starts one (`cluster`). Tasks run `node` on the cluster's nodes.
"""
