"""The Hugging Face hub: whether it answers, and uploads to it.

Without a connection the hub's own client tries again for half a minute and more, for each file that
it asks for.
"""

import http.client
import os
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from plumbline.config.imports import import_needed
from plumbline.errors import ModelError, RecipeError, make_visible
from plumbline.storage import one_line

PATIENCE = 3.0
"""Seconds in which the hub has to answer."""
HOW = (
    "check the network and the proxy (HTTPS_PROXY), or set HF_ENDPOINT to a mirror that you can "
    "reach"
)


def check_hub(what: str, *, cached: bool) -> None:
    """See that the hub answers before its client is asked; where it does not, use the cache alone,
    or end at once.

    Args:
        what: is needed from the hub, for the message.
        cached: whether it may be in the hub's cache on this machine.

    Raises:
        ModelError: the hub does not answer, and nothing of it is in the cache.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or not (why := _silence(constants.ENDPOINT)):
        return
    said = f"the hub {constants.ENDPOINT} does not answer ({why})"
    if not cached:
        raise ModelError(
            f"{what} is not on this machine, and {said}", f"{HOW}; or give a folder of this machine"
        )
    sys.stderr.write(f"note: {make_visible(said)}; {what} is taken from the cache\n")
    os.environ["HF_HUB_OFFLINE"] = "1"  # for `datasets`, which reads it when it is imported
    constants.HF_HUB_OFFLINE = True


def is_cached(name: str, *, data: bool = False) -> bool:
    """Whether something of a model, or of a data set, of the hub is in the hub's cache on this
    machine."""
    from huggingface_hub import constants

    kind = "datasets" if data else "models"
    folder = Path(constants.HF_HUB_CACHE) / f"{kind}--{name.replace('/', '--')}" / "snapshots"
    return folder.is_dir() and any(folder.iterdir())


@cache
def _silence(endpoint: str) -> str:
    """Why an address does not answer within `PATIENCE`; empty where something answers, whatever it
    says."""
    said = [f"no answer within {PATIENCE:g} s"]

    def ask() -> None:
        try:
            urllib.request.urlopen(  # noqa: S310
                urllib.request.Request(endpoint, method="HEAD"),  # noqa: S310
                timeout=PATIENCE,
            ).close()
        except urllib.error.HTTPError as error:
            error.close()
        except (ssl.SSLError, http.client.HTTPException, ValueError):
            pass  # something is there; the hub's client says what is wrong with it
        except OSError as error:
            reason = getattr(error, "reason", error)
            if not isinstance(reason, ssl.SSLError):
                said[0] = one_line(reason) if isinstance(reason, BaseException) else str(reason)
                return
        said[0] = ""

    # In a thread, because no timeout bounds the look-up of a name.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return said[0]


class Repository:
    """A model repository of the hub that a folder is uploaded to, with the token of the environment
    or the login."""

    def __init__(self, name: str, *, public: bool) -> None:
        """See that it can be written to, before anything is made for it.

        Raises:
            RecipeError: the name is not USER/NAME.
            ModelError: huggingface_hub is missing, the hub does not answer, or does not know the
                token.
        """
        self.hub = import_needed("huggingface_hub", "--push")
        # Not every version has its parts without an import of their own.
        utils = import_needed("huggingface_hub.utils", "--push")
        self.refusals = (
            OSError,
            ValueError,
            import_needed("huggingface_hub.errors", "--push").HTTPError,
        )
        self.name, self.public = name, public
        try:
            utils.validate_repo_id(name)
        except ValueError as error:
            raise RecipeError(f"--push is {name}: {one_line(error)}", "give USER/NAME") from error
        if name.count("/") != 1:
            raise RecipeError(f"--push is {name}, which names no user", "give USER/NAME")
        check_hub(f"the repository {name}", cached=False)
        if self.hub.get_token() is None:
            raise ModelError(
                "there is no token for the hub",
                "run `hf auth login`, or set HF_TOKEN to a write token",
            )
        self.api = self.hub.HfApi()
        with self._clear(
            "the hub does not take the token",
            "run `hf auth login`, or set HF_TOKEN to a write token",
        ):
            self.api.whoami()

    @contextmanager
    def _clear(self, what: str, fix: str) -> Iterator[None]:
        try:
            yield
        except self.refusals as error:
            raise ModelError(f"{what}: {one_line(error)}", fix) from error

    def upload(self, folder: Path) -> str:
        """Make the repository, private unless it is to be public, and upload a folder to it in one
        commit.

        Returns:
            Its address.

        Raises:
            ModelError: the hub refuses it, the connection breaks, or it is there and public
                unasked.
        """
        fix = (
            f"the export stays in {folder}; give a repository that the token may write to, and "
            "push again"
        )
        with self._clear(f"cannot upload to {self.name}", fix):
            made = self.api.create_repo(self.name, private=not self.public, exist_ok=True)
            if not self.public and not self.api.model_info(self.name).private:
                raise ModelError(
                    f"the repository {self.name} is there already and public",
                    f"add --public; {fix}",
                )
            self.api.upload_folder(
                repo_id=self.name,
                folder_path=folder,
                commit_message="Upload an export of Plumbline",
                ignore_patterns=".plumbline",
            )
        return str(made)
