// Kysely: its migrator under an advisory lock, introspection with a view, queries, streams, transactions.
const assert = require("node:assert");
const { Kysely, Migrator, PostgresDialect, sql } = require("kysely");
const { Pool } = require("pg");
const Cursor = require("pg-cursor");

const pool = new Pool({ host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon" });
const db = new Kysely({ dialect: new PostgresDialect({ pool, cursor: Cursor }) });
const migrations = {
  one: {
    up: async (k) => {
      await k.schema.createTable("pet").addColumn("id", "serial", (c) => c.primaryKey()).addColumn("name", "varchar(20)", (c) => c.notNull().unique()).execute();
      await k.schema.createView("named").as(k.selectFrom("pet").select("name")).execute();
    },
    down: async (k) => {
      await k.schema.dropView("named").execute();
      await k.schema.dropTable("pet").execute();
    },
  },
};

async function main() {
  const migrator = new Migrator({ db, provider: { getMigrations: async () => migrations } });
  const ran = await migrator.migrateToLatest();
  if (ran.error) throw ran.error;
  assert.strictEqual(ran.results.length, 1);
  const tables = await db.introspection.getTables();
  assert.deepStrictEqual(tables.map((t) => [t.name, t.isView]), [["named", true], ["pet", false]]);
  assert.strictEqual(tables[1].columns[0].isAutoIncrementing, true);
  const names = [...Array(300).keys()].map((i) => ({ name: `n${i}` }));
  assert.strictEqual((await db.insertInto("pet").values(names).returning("id").execute()).length, 300);
  await db.insertInto("pet").values({ name: "n1" }).onConflict((c) => c.column("name").doUpdateSet({ name: "m1" })).execute();
  let seen = 0;
  for await (const _ of db.selectFrom("pet").selectAll().stream(100)) seen += 1;
  assert.strictEqual(seen, 300);
  await db.transaction().setIsolationLevel("serializable").execute((t) => t.updateTable("pet").set({ name: "first" }).where("id", "=", 1).execute());
  const over = await db.selectFrom("pet").select(["id", sql`row_number() over (order by id desc)`.as("n")]).orderBy("n").limit(1).executeTakeFirst();
  assert.deepStrictEqual([over.id, over.n], [300, "1"]);
  const back = await migrator.migrateDown();
  if (back.error) throw back.error;
  await db.destroy();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
