"""Before asyncpg's suite. Some of its tests name the database postgres: they use the one that the environment names, at either server. A test
that fails may leave its tables, which later tests would meet: they are dropped, so that one failure counts once."""
import asyncio

import asyncpg
from asyncpg import _testbase

original = _testbase.ClusterTestCase.get_connection_spec.__func__


def get_connection_spec(cls, kwargs={}):
    if kwargs.get("database") == "postgres":
        kwargs = {name: value for name, value in kwargs.items() if name != "database"}
    return original(cls, kwargs)


_testbase.ClusterTestCase.get_connection_spec = classmethod(get_connection_spec)


async def drop_tables():
    connection = await asyncpg.connect(server_settings={"lock_timeout": "5s"})
    left = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    for row in await connection.fetch(left):
        await connection.execute(f'DROP TABLE "{row[0]}" CASCADE')
    await connection.close()


def pytest_runtest_logreport(report):
    if report.failed:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(drop_tables())
        loop.close()
