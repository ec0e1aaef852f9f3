"""Real parties over gRPC: one port at the server, one stream a party, mutual TLS 1.3."""

import os
import sys

# gRPC has no setting for the lowest version of TLS. A deployment's keys are all elliptic, and this
# list has a suite for RSA alone: TLS 1.2 finds none in common. TLS 1.3 has its own list. It is
# read once, when gRPC is imported: hence here.
_SUITES = ("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384")

TLS_1_3_ALONE = "grpc" not in sys.modules or os.environ.get(_SUITES[0]) == _SUITES[1]
"""Whether gRPC read it: a server's port is not opened otherwise."""

os.environ[_SUITES[0]] = _SUITES[1]
# What gRPC's core prints about strangers is not for an operator's log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
