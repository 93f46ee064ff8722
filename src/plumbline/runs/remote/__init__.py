"""Runs and models at addresses: `scheme://...`, whatever fsspec knows (s3, gs, abfs, file, memory).

Everything in the package works on folders of this machine. What has an address is brought here, or kept there, by this
package alone:

    address.py    what an address is, and which folder of this machine stands for it
    store.py      bytes at an address: read, written, listed; tried again where the store does not answer
    manifest.py   which files there are, of which parts, with the sha256 of each
    lock.py       who writes the run at an address
    fetch.py      files of a manifest, verified, into a folder
    nearest.py    what is there in place of a checkpoint or a model that is not
    here.py       a run's records or a model at an address, in a cache of this machine

What writes is `plumbline.runs.published`. Imported without fsspec, which is asked for where a store is opened.
"""

from plumbline.runs.remote.address import folder_for, is_address, join, only_here, portable
from plumbline.runs.remote.here import local_model, local_run, local_runs

__all__ = ["folder_for", "is_address", "join", "local_model", "local_run", "local_runs", "only_here", "portable"]
