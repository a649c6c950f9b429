"""Work done by several processes, on this machine or on a cluster; Ray places them and tells when one has died."""

from readout.cluster.crew import Crew, Workers

__all__ = ["Crew", "Workers"]
