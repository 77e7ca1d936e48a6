"""`python -m headwise`, the same as `headwise`."""

from headwise.cli import main

if __name__ == "__main__":
    main()
