"""Deployment on Flower: the two apps, a silo's cache, keys and certificates, and the processes of a federation."""
