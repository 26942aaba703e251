"""Deployment on Flower: the two apps, a silo's cache, keys and certificates, and the processes of a federation.

Its modules, each after those that it imports:

- what people write, or are given: settings, privacy_budget, silo_config, server_config, keys, app_folder
- the silos' app: cache, answering, local_dp, log_lines, client_app
- Flower's processes: end_with_parent, flower_log, polling, hand_over, warm, running, superlink, supernode, processes
- the server's app: registration, server_app
- before a run: check, messages
- everything on one machine: local, demo, simulate
"""
