// jOOQ: code generated from the schema, and the DSL: upserts, MULTISET, windows, MERGE, batches, transactions.
import static org.jooq.impl.DSL.*;

import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.*;
import org.jooq.*;
import org.jooq.codegen.GenerationTool;

public class Jooq {
    static void want(Object got, Object wanted) {
        if (!java.util.Objects.equals(got, wanted)) throw new AssertionError("got " + got + ", wanted " + wanted);
    }

    public static void main(String[] args) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/canon";
        try (java.sql.Connection c = DriverManager.getConnection(url, "canon", "")) {
            c.createStatement().execute("CREATE TYPE mood AS ENUM ('sad', 'glad')");
            c.createStatement().execute("CREATE DOMAIN years AS int CHECK (value > 0)");
            c.createStatement().execute("CREATE TABLE author (id serial PRIMARY KEY, name varchar(20) NOT NULL UNIQUE, mood mood, age years)");
            c.createStatement().execute("CREATE TABLE book (id int PRIMARY KEY, author int REFERENCES author, title text, tags text[], CHECK (id > 0))");
            c.createStatement().execute("CREATE VIEW titles AS SELECT title FROM book");
            c.createStatement().execute("COMMENT ON TABLE book IS 'books'");
            DSLContext db = using(c, SQLDialect.POSTGRES);
            Path at = Files.createTempDirectory("jooq");
            var jdbc = new org.jooq.meta.jaxb.Jdbc().withDriver("org.postgresql.Driver").withUrl(url).withUser("canon");
            var database = new org.jooq.meta.jaxb.Database().withName("org.jooq.meta.postgres.PostgresDatabase").withInputSchema("public");
            var target = new org.jooq.meta.jaxb.Target().withPackageName("made").withDirectory(at.toString());
            GenerationTool.generate(new org.jooq.meta.jaxb.Configuration().withJdbc(jdbc)
                .withGenerator(new org.jooq.meta.jaxb.Generator().withDatabase(database).withTarget(target)));
            for (String made : new String[] {"tables/Author", "tables/Book", "tables/Titles", "enums/Mood", "Keys"}) {
                if (!Files.exists(at.resolve("made/" + made + ".java"))) throw new AssertionError("not generated: " + made);
            }
            String book = Files.readString(at.resolve("made/tables/Book.java"));
            if (!book.contains("TITLE") || !book.contains("BOOK_AUTHOR_FKEY")) throw new AssertionError("columns and keys of book");

            Table<?> author = table(name("author")), books = table(name("book"));
            Field<Integer> id = field(name("author", "id"), Integer.class), writer = field(name("book", "author"), Integer.class);
            Field<String> called = field(name("name"), String.class), title = field(name("title"), String.class);
            want(db.insertInto(author, called).values("ada").values("bob").returning(id).fetch().size(), 2);
            db.insertInto(author, called).values("ada").onConflict(called).doUpdate().set(called, "eve").execute();
            db.batch(db.insertInto(books, field(name("id"), Integer.class), field(name("author"), Integer.class), title).values((Integer) null, null, null))
                .bind(1, 1, "x").bind(2, 1, "y").execute();
            var nested = db.select(called, multiset(select(title).from(books).where(writer.eq(id)).orderBy(title)).as("books").convertFrom(r -> r.size()))
                .from(author).orderBy(called).fetch();
            want(nested.get(1).value2(), 2);
            want(db.select(rowNumber().over(orderBy(title.desc()))).from(books).orderBy(inline(1)).fetch().get(0).value1(), 1);
            db.transaction(t -> t.dsl().update(books).set(title, "z").where(title.likeIgnoreCase("X%")).execute());
            want(db.fetchCount(books, title.like(any("z", "q"))), 1);
            want(db.meta().filterSchemas(s -> s.getName().equals("public")).getTables("book").get(0).fields().length, 4);
        }
    }
}
