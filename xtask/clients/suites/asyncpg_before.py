"""Before asyncpg's suite: some of its tests name the database postgres. They use the one that the environment names, at either server."""
from asyncpg import _testbase

original = _testbase.ClusterTestCase.get_connection_spec.__func__


def get_connection_spec(cls, kwargs={}):
    if kwargs.get("database") == "postgres":
        kwargs = {name: value for name, value in kwargs.items() if name != "database"}
    return original(cls, kwargs)


_testbase.ClusterTestCase.get_connection_spec = classmethod(get_connection_spec)
