"""Rewards on a Ray cluster: `where: ray` in a recipe, or `where: ray://head:10001`.

`pool` is what a scorer sees: the same as workers on this machine (rlvr/workers/pool.py). `chunks` shares a batch out
and puts it together again. `line` has a process of its own (`driver`) talk to Ray, since Ray ends a process whose
cluster is gone, and a training process must outlive that. There `cluster` joins a cluster or starts one, and `node` is
what a task does where Ray has sent it. `judging` judges programs in this way without any reward.
"""
