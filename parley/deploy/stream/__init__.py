"""Connect real parties over gRPC: one server port, one stream per party, mutual TLS 1.3."""

import os
import sys

# gRPC has no setting for the lowest TLS version. A deployment has only elliptic-curve keys, and
# this list has only a suite for RSA, so TLS 1.2 finds no common suite. TLS 1.3 has its own list.
# gRPC reads the variable once, when it is imported, so it is set here.
_SUITES = ("GRPC_SSL_CIPHER_SUITES", "ECDHE-RSA-AES256-GCM-SHA384")

TLS_1_3_ALONE = "grpc" not in sys.modules or os.environ.get(_SUITES[0]) == _SUITES[1]
"""Whether gRPC has read the list. If not, the server does not open its port."""

os.environ[_SUITES[0]] = _SUITES[1]
# gRPC's own messages about unknown callers do not belong in an operator's log.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
