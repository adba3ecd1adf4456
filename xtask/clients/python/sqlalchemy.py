"""SQLAlchemy over psycopg2: the ORM with relations, RETURNING and upserts, savepoints, what reflection finds."""
import sys

from sqlalchemy import CheckConstraint, ForeignKey, Index, MetaData, String, UniqueConstraint, create_engine, func, inspect, select
from sqlalchemy.dialects.postgresql import ARRAY, INTEGER, JSONB, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

engine = create_engine(f"postgresql+psycopg2://canon@127.0.0.1:{sys.argv[1]}/canon")


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"
    __table_args__ = {"comment": "who writes"}
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), unique=True, comment="a name")
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Book(Base):
    __tablename__ = "book"
    __table_args__ = (CheckConstraint("pages > 0", name="has_pages"), UniqueConstraint("author_id", "title", name="one_title"), Index("by_pages", "pages"))
    id: Mapped[int] = mapped_column(primary_key=True)
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id", ondelete="CASCADE"))
    title: Mapped[str]
    pages: Mapped[int]
    tags: Mapped[list[int]] = mapped_column(ARRAY(INTEGER), server_default="{}")
    more: Mapped[dict | None] = mapped_column(JSONB)
    author: Mapped[Author] = relationship(back_populates="books")


Base.metadata.create_all(engine)
with Session(engine) as s:
    s.add_all([Author(name=n, books=[Book(title=f"{n}{i}", pages=i + 1, more={"i": i}) for i in range(3)]) for n in "ab"])
    s.commit()
    totals = select(Author.name, func.sum(Book.pages)).join(Book).group_by(Author.name).order_by(Author.name)
    assert s.execute(totals).all() == [("a", 6), ("b", 6)]
    assert s.scalars(select(Book).where(Book.more["i"].as_integer() == 2)).first().pages == 3
    with s.begin_nested() as savepoint:
        s.delete(s.get(Author, 1))
        savepoint.rollback()
    upsert = insert(Author).values(name="a").on_conflict_do_update(index_elements=[Author.name], set_={"name": "c"}).returning(Author.id)
    assert s.execute(upsert).scalar() == 1
    s.commit()
i = inspect(engine)
assert i.get_table_comment("author") == {"text": "who writes"}
assert [c["comment"] for c in i.get_columns("author")] == [None, "a name"]
assert i.get_pk_constraint("book")["constrained_columns"] == ["id"]
assert i.get_foreign_keys("book")[0]["options"] == {"ondelete": "CASCADE"}
assert [c["name"] for c in i.get_check_constraints("book")] == ["has_pages"]
assert [u["name"] for u in i.get_unique_constraints("book")] == ["one_title"]
assert {x["name"] for x in i.get_indexes("book")} == {"by_pages", "one_title"}
found = MetaData()
found.reflect(engine)
assert {"author", "book"} <= set(found.tables)
Base.metadata.drop_all(engine)
