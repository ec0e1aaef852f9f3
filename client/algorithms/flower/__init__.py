"""Train with a Flower ClientApp, unchanged, inside each party: federated averaging of its updates.

`flower_averaging` is the algorithm. `client_app_adapter` is the only module that imports Flower.
"""
