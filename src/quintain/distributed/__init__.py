"""The parts of a run on several machines: engines and workers that play episodes, as actors of a Ray cluster.

`placement` says which part needs what, `connection` reaches the cluster, `replicas` is the engine whose copies sit in
`engine_host`, `fleet` hands episodes to `worker` and plays again what was lost, `cluster` puts it together. The driver
keeps the learner, or asks its ranks, and is the only one that writes the journal. Actors get and give our own nouns in
Ray's own encoding, which trusts everybody in the cluster: keep its ports in a private network.
"""
