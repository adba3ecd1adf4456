"""Alembic: revisions forth and back, and what autogenerate finds between a schema and its models."""
import pathlib
import sys
import tempfile

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Column, Computed, Enum, ForeignKey, Index, Integer, MetaData, String, Table, create_engine, func, inspect

URL = f"postgresql+psycopg2://canon@127.0.0.1:{sys.argv[1]}/canon"
at = pathlib.Path(tempfile.mkdtemp())
config = Config()
config.set_main_option("script_location", str(at / "scripts"))
config.set_main_option("sqlalchemy.url", URL)
(at / "scripts" / "versions").mkdir(parents=True)
ENV = """
from alembic import context
from sqlalchemy import create_engine
with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as c:
    context.configure(connection=c, target_metadata=None)
    with context.begin_transaction():
        context.run_migrations()
"""
(at / "scripts" / "env.py").write_text(ENV)
STEPS = [
    ("op.create_table('author', sa.Column('id', sa.Integer, primary_key=True), sa.Column('name', sa.String(20), nullable=False))", "op.drop_table('author')"),
    (
        "op.create_table('book', sa.Column('id', sa.Integer, primary_key=True), sa.Column('author', sa.Integer, sa.ForeignKey('author.id')),"
        " sa.Column('kind', sa.Enum('novel', 'poem', name='kind')), sa.Column('twice', sa.Integer, sa.Computed('id * 2')))",
        "op.drop_table('book'); op.execute('DROP TYPE kind')",
    ),
    ("op.alter_column('author', 'name', type_=sa.String(50), new_column_name='full_name')", "op.alter_column('author', 'full_name', type_=sa.String(20), new_column_name='name')"),
    ("op.create_index('named', 'author', [sa.text('lower(full_name)')], postgresql_where=sa.text('id > 5'))", "op.drop_index('named')"),
]
HEAD = "import sqlalchemy as sa\nfrom alembic import op\n"
for i, (up, down) in enumerate(STEPS):
    before = f"'r{i - 1}'" if i else None
    body = f"revision = 'r{i}'\ndown_revision = {before}\n\ndef upgrade():\n    {up}\n\ndef downgrade():\n    {down}\n"
    (at / "scripts" / "versions" / f"r{i}.py").write_text(HEAD + body)
command.upgrade(config, "head")
engine = create_engine(URL)
models = MetaData()
author = Table("author", models, Column("id", Integer, primary_key=True), Column("full_name", String(50), nullable=False))
Index("named", func.lower(author.c.full_name), postgresql_where=author.c.id > 5)
kind = Enum("novel", "poem", name="kind")
book = Table("book", models, Column("id", Integer, primary_key=True), Column("author", ForeignKey("author.id")), Column("kind", kind), Column("twice", Integer, Computed("id * 2")))
with engine.connect() as c:
    assert compare_metadata(MigrationContext.configure(c, opts={"compare_type": True}), models) == []
    book.append_column(Column("pages", Integer))
    found = compare_metadata(MigrationContext.configure(c), models)
    assert [f[0] for f in found] == ["add_column"], found
command.downgrade(config, "r1")
command.upgrade(config, "head")
command.downgrade(config, "base")
assert inspect(engine).get_table_names() == ["alembic_version"]
