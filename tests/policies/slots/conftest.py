import pytest

from tests.policies.slots.models import opened, save_mini


@pytest.fixture(scope="session")
def mini(tmp_path_factory):
    """Directory of the three-token model."""
    return save_mini(tmp_path_factory.mktemp("slots") / "mini")


@pytest.fixture
def policy(mini):
    return opened(mini)


@pytest.fixture
def exact(mini):
    """The same in double precision."""
    return opened(mini, double=True)
