"""Rewards and judgements on a Ray cluster.

Ray ends a process whose cluster is gone, and a training process must outlive that. So `driver_client` sends tasks to a
process of its own (`driver`), which joins the cluster (`cluster`). Tasks run `node` on the cluster's nodes.
"""
