"""Every error that Headwise raises on purpose.

    HeadwiseError
    ├── ConfigError      a recipe, an override or a combination of settings
    ├── DataError        text or token ids that cannot be used
    │   └── DownloadError    text that cannot be had from where it is
    ├── CheckpointError  a run directory or a file in it
    │   └── UnsafeFileError  a symlink, FIFO or device in it, or a file too large to be right
    ├── DivergenceError  training that left the range of numbers
    └── RequestError     a request to translate, explain or serve

Each message says what is wrong, where (file, line or key) and what to do about it.
The command line prints it as one line and exits with 2.
"""


class HeadwiseError(Exception):
    """The root: catch this to catch everything that is the input's fault, not a bug."""


class ConfigError(HeadwiseError):
    """A recipe, an override or a combination of settings is wrong."""


class DataError(HeadwiseError):
    """Text or token ids cannot be used as they are."""


class DownloadError(DataError):
    """Text cannot be had from where it is: no network, no pip, or another file than expected."""


class CheckpointError(HeadwiseError):
    """A run directory, or a file in it, cannot be used as it is."""


class UnsafeFileError(CheckpointError):
    """A symlink, FIFO or device where a directory has a regular file, or a file that is too large.

    Unlike a damaged checkpoint it is never skipped in favour of another one.
    """


class DivergenceError(HeadwiseError):
    """A loss or a gradient is not a finite number any more; the weights are those before it."""


class RequestError(HeadwiseError):
    """A request asks for something that cannot be done."""
