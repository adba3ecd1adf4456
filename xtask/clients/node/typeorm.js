// TypeORM: synchronize, twice so that it reads its own schema, relations, generated uuids, arrays and enums, upserts, transactions.
const assert = require("node:assert");
const { DataSource, EntitySchema } = require("typeorm");

const Author = new EntitySchema({
  name: "Author",
  columns: {
    id: { type: "uuid", primary: true, generated: "uuid" },
    name: { type: "varchar", unique: true },
    tags: { type: "int", array: true, default: "{}" },
    mood: { type: "enum", enum: ["sad", "glad"], default: "sad" },
    made: { type: "timestamptz", createDate: true },
  },
  relations: { books: { type: "one-to-many", target: "Book", inverseSide: "author", cascade: true } },
});
const Book = new EntitySchema({
  name: "Book",
  columns: { id: { type: "int", primary: true, generated: "increment" }, title: { type: "text" } },
  relations: { author: { type: "many-to-one", target: "Author", inverseSide: "books", onDelete: "CASCADE" } },
  indices: [{ columns: ["title"], where: "title <> ''" }],
});
const place = { type: "postgres", host: "127.0.0.1", port: Number(process.argv[2]), username: "canon", database: "canon", entities: [Author, Book], synchronize: true };

async function main() {
  const first = await new DataSource(place).initialize();
  await first.destroy();
  const db = await new DataSource(place).initialize();
  const left = (await db.driver.createSchemaBuilder().log()).upQueries;
  assert.deepStrictEqual(left.map((q) => q.query), []);
  const authors = db.getRepository("Author");
  await authors.save({ name: "ada", tags: [1, 2], mood: "glad", books: [{ title: "x" }, { title: "y" }] });
  const found = await authors.findOne({ where: { name: "ada" }, relations: { books: true } });
  assert.strictEqual(found.books.length, 2);
  assert.deepStrictEqual(found.tags, [1, 2]);
  await authors.upsert({ name: "ada", mood: "sad" }, ["name"]);
  await db.transaction("SERIALIZABLE", async (m) => {
    await m.getRepository("Author").createQueryBuilder("a").setLock("pessimistic_write").getMany();
    await m.getRepository("Book").increment({ title: "none" }, "id", 1);
  });
  assert.strictEqual((await authors.findOneBy({ name: "ada" })).mood, "sad");
  const paged = await authors.createQueryBuilder("a").leftJoinAndSelect("a.books", "b").orderBy("b.title", "DESC").take(1).getManyAndCount();
  assert.strictEqual(paged[1], 1);
  await db.dropDatabase();
  await db.destroy();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
