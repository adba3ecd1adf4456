// Knex: migrations, upserts, windows, locks, transactions.
const assert = require("node:assert");
const knex = require("knex")({ client: "pg", connection: { host: "127.0.0.1", port: Number(process.argv[2]), user: "canon", database: "canon" } });

const steps = {
  one: {
    up: (k) =>
      k.schema.createTable("people", (t) => {
        t.increments();
        t.string("name").notNullable().unique();
        t.enu("mood", ["sad", "glad"], { useNative: true, enumName: "mood" });
        t.jsonb("more");
        t.timestamps(true, true);
      }),
    down: (k) => k.schema.dropTable("people").raw("DROP TYPE mood"),
  },
  two: {
    up: (k) => k.schema.alterTable("people", (t) => t.integer("years").index()),
    down: (k) => k.schema.alterTable("people", (t) => t.dropColumn("years")),
  },
};
const source = { getMigrations: async () => Object.keys(steps), getMigrationName: (n) => n, getMigration: async (n) => steps[n] };

async function main() {
  await knex.migrate.latest({ migrationSource: source });
  const people = ["a", "b", "c"].map((name, i) => ({ name, mood: "glad", more: { deep: { i } }, years: i }));
  assert.strictEqual((await knex("people").insert(people).returning("id")).length, 3);
  await knex("people").insert({ name: "a", years: 9 }).onConflict("name").merge();
  const ranked = await knex("people").select("name").rank("place", "years").orderBy("place");
  assert.deepStrictEqual(ranked.map((r) => r.name), ["b", "c", "a"]);
  await knex.transaction(async (t) => {
    await t("people").forUpdate().where({ name: "b" }).first();
    await t("people").where({ name: "b" }).increment("years", 5);
  });
  assert.strictEqual((await knex("people").where({ name: "b" }).first()).years, 6);
  assert.strictEqual(await knex.schema.hasColumn("people", "years"), true);
  await knex.migrate.rollback({ migrationSource: source }, true);
  await knex.destroy();
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
