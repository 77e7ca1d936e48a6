"""`python -m headwise`, and `headwise`."""

import signal

# Until the command listens itself, Ctrl-C ends it at once, without a trace of what was imported.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from headwise.cli import main
from headwise.garbage import collect_less

collect_less()

if __name__ == "__main__":
    main()
