"""The same FedAvg in other people's frameworks, each in an environment of its own: time and memory of the whole run."""
