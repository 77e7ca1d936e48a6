"""Attacks on a server, and what another client notices of them.

A server runs in a process of its own, with default options. One process attacks it from several
loopback addresses and uses at most half a core. A client that does nothing wrong asks for its
health and for short translations all the while, and its answers and waiting times are recorded.
All attacks are bounded in time and number, and reach no address but 127.0.0.0/8.

How the source was before, measured with another checkout of it:

    python -m tests.attacks --source ../old/src --json tests/attacks/before.json

How it is now, compared with that in docs/security-tests.md:

    make security-tests

Run both on a machine that does nothing else; one takes about 4 minutes.
"""
