"""Before the program starts: where this host has the certificates that it trusts.

The OpenSSL in the bundle looks for them where Debian's package openssl puts them.
"""

import os

PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # RHEL, Fedora
    "/etc/ssl/ca-bundle.pem",  # SUSE
)

for place in PLACES:
    if os.path.exists(place):
        os.environ.setdefault("SSL_CERT_FILE", place)
        break
