"""Rewards that run on other machines: the client's side of the reward server (rlvr/serving).

A reward whose recipe says `where: http://host:port` (or several, with commas between) is called there. `addresses`
reads that key and `pool` is what a scorer sees: the same as workers on this machine (rlvr/workers/pool.py). Behind it,
`carrying` writes a batch as JSON, `portions` shares its rows out, `work` has the requests answered, `server` talks to
one server, `answers` reads what it said, and `news` tells a person of servers that are not there.
"""
